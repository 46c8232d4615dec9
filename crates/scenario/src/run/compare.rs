//! Comparing the engine with the plain interpreter.

use std::sync::atomic::Ordering;

use graphgrove::Tensor;
use graphgrove_storage::Error as StorageError;

use crate::run::failure::Failure;
use crate::run::ground::Ground;
use crate::run::interp::{Binding, Done, Handle, Interp, Origin};
use crate::run::memory::read;
use crate::run::model::ModelTensor;
use crate::{ModeName, Name, Old};

/// Whether two values are the same to the last bit; two that are no numbers are the same.
pub(crate) fn is_same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

/// An index in each dimension, as `[1, 2]`.
pub(crate) fn index(shape: &[u64], at: usize) -> String {
    let mut rest = at as u64;
    let mut index: Vec<String> = Vec::new();
    for size in shape.iter().rev() {
        let size = (*size).max(1);
        index.push((rest % size).to_string());
        rest /= size;
    }
    index.reverse();
    format!("[{}]", index.join(", "))
}

impl<D: Ground> Interp<'_, '_, D> {
    /// Compares every value that can be read, and the blocks that all values lie in.
    pub(crate) fn compare_all(&mut self) -> Done {
        if self.is_poisoned() {
            return Ok(());
        }
        self.settle()?;
        self.compare_blocks()?;
        let names: Vec<String> = self.names.keys().cloned().collect();
        names.iter().try_for_each(|name| self.compare_name(name))
    }

    /// Compares the value of a name that is about to hold something else.
    pub(crate) fn compare_last(&mut self, name: &str) -> Done {
        if self.world.is_lazy || self.is_poisoned() {
            return Ok(());
        }
        self.settle()?;
        self.compare_name(name)
    }

    /// Compares the value of a name. All work must be over.
    pub(crate) fn compare_name(&self, name: &str) -> Done {
        match self.names.get(name) {
            Some(Binding::Tensor(handle) | Binding::Param(handle)) => self.compare(name, handle),
            _ => Ok(()),
        }
    }

    /// Compares one value. All work must be over.
    pub(crate) fn compare(&self, name: &str, handle: &Handle) -> Done {
        if self.is_poisoned() {
            return Ok(());
        }
        if handle.tensor.shape() != handle.model.shape {
            let (found, wanted) = (handle.tensor.shape(), &handle.model.shape);
            return Err(self.wrong(format!("`{name}` has the shape {found:?}, not {wanted:?}")));
        }
        match self.read(&handle.tensor) {
            Ok(values) => {
                self.world.compared.fetch_add(1, Ordering::Relaxed);
                let wanted = self.model.values(&handle.model);
                let differs =
                    values.iter().zip(&wanted).position(|(value, wanted)| !is_same(*value, *wanted));
                let Some(at) = differs else { return Ok(()) };
                let (found, wanted) = (values[at], wanted[at]);
                let element = index(&handle.model.shape, at);
                let made = self.made_by(&handle.model);
                Err(self.wrong(format!("element {element} of `{name}`, {made}, is {found}, not {wanted}")))
            }
            Err(StorageError::Stale(_)) => self.is_stale_by_a_rule(&handle.model),
            Err(error) => Err(self.wrong(format!("`{name}` cannot be read: {error}"))),
        }
    }

    /// The elements of a tensor. While several threads run, only the engine can read: it lets no call in between, and waits for the
    /// device when nothing captures.
    pub(crate) fn read(&self, tensor: &Tensor) -> Result<Vec<f32>, StorageError> {
        if !self.is_crowded() {
            return read(&*self.world.device, tensor);
        }
        match self.site().engine.read::<f32>(tensor) {
            Ok(values) => Ok(values),
            Err(graphgrove::Error::Storage(error)) => Err(error),
            Err(graphgrove::Error::Device(error)) => Err(error.into()),
            // An engine that is shut down calls nothing in between.
            Err(_) => read(&*self.world.device, tensor),
        }
    }

    /// The function whose output it is, if it is one.
    pub(crate) fn producer(&self, model: &ModelTensor) -> Option<&str> {
        match self.origins.get(model.storage)? {
            Origin::Output { function, .. } => Some(function),
            Origin::Own => None,
        }
    }

    fn made_by(&self, model: &ModelTensor) -> String {
        match self.origins.get(model.storage) {
            Some(Origin::Output { function, call, line, .. }) => {
                format!("made by call {call} of `{function}` in line {line}")
            }
            Some(Origin::Own) | None => "the caller's own".to_owned(),
        }
    }

    /// A value is gone: the program has asked for that.
    pub(crate) fn is_stale_by_a_rule(&self, model: &ModelTensor) -> Done {
        let Some(Origin::Output { site, function, steps, attempts, .. }) = self.origins.get(model.storage)
        else {
            return Err(self.wrong("memory of the caller's own is stale"));
        };
        let Some(site) = self.world.sites.get(*site) else { return Ok(()) };
        let Some(registered) = site.functions.get(function) else { return Ok(()) };
        let made = self.made_by(model);
        if registered.old != Old::Error {
            return Err(self.wrong(format!("a value {made} is stale, although it is to be kept")));
        }
        let now = site.steps.load(Ordering::Relaxed);
        let has_reason = match registered.mode {
            ModeName::Eager => false,
            ModeName::OnePool => registered.attempts.load(Ordering::Relaxed) > *attempts,
            // Where any pending backward holds a step up, it begins whenever the last of them has run.
            ModeName::Trees | ModeName::Auto if self.world.setup.layers == 0 => now > 0,
            ModeName::Trees | ModeName::Auto => now > *steps,
        };
        if has_reason {
            Ok(())
        } else {
            Err(self.wrong(format!("a value {made} is stale, and nothing has ended it")))
        }
    }

    /// No two live storages overlap; two handles lie in one block exactly if the interpreter has one vector for them.
    fn compare_blocks(&self) -> Done {
        let mut blocks: Vec<(u64, u64, usize, &str)> = Vec::new();
        for (name, binding) in &self.names {
            let (Binding::Tensor(handle) | Binding::Param(handle)) = binding else { continue };
            if handle.model.count() == 0 {
                continue;
            }
            let storage = handle.tensor.storage();
            if let (Ok(base), Ok(bytes)) = (storage.base(), storage.bytes()) {
                blocks.push((base.get(), base.get() + bytes, handle.model.storage, name));
            }
        }
        blocks.sort_unstable();
        for pair in blocks.windows(2) {
            let [(base, end, storage, name), (next, next_end, other, other_name)] = pair else { continue };
            let is_one = storage == other;
            let has_one = base == next && end == next_end;
            if (is_one && !has_one) || (!is_one && end > next) {
                let why = if is_one {
                    format!("`{name}` and `{other_name}` are one storage and lie in two blocks")
                } else {
                    format!("`{name}` and `{other_name}` lie in one block, and are two storages")
                };
                return Err(self.wrong(why));
            }
        }
        Ok(())
    }

    /// The values of a name, if they are there.
    pub(crate) fn values(&self, name: &Name) -> Result<Vec<f32>, Failure> {
        let handle = self.handle(name)?;
        self.settle()?;
        let values = self.read(&handle.tensor);
        values.map_err(|error| self.wrong(format!("`{name}` cannot be read: {error}")))
    }

    pub(crate) fn is_gone(&self, name: &Name) -> Result<bool, Failure> {
        let address = |tensor: &Tensor| tensor.address().is_err();
        self.handle(name).map(|handle| address(&handle.tensor))
    }

    /// A handle was refused: its value has to be gone by a rule.
    pub(crate) fn refused(
        &mut self,
        models: &[ModelTensor],
        error: graphgrove::Error,
        tries: bool,
        binds: &[&Name],
    ) -> Done {
        if !tries || !matches!(error, graphgrove::Error::Storage(StorageError::Stale(_))) {
            return Err(self.wrong(error));
        }
        models.iter().try_for_each(|model| self.is_stale_by_a_rule(model))?;
        for name in binds {
            self.names.remove(&name.text);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_counts_the_last_dimension_fastest() {
        assert_eq!(index(&[2, 3], 4), "[1, 1]");
        assert_eq!(index(&[], 0), "[]");
    }

    #[test]
    fn values_are_the_same_to_the_last_bit() {
        assert!(is_same(f32::NAN, -f32::NAN) && !is_same(0.0, -0.0) && is_same(1.5, 1.5));
    }
}
