//! Several threads of a program at once.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::bound::{MOST_THREADS, too_many_threads};
use crate::run::ground::Ground;
use crate::run::interp::{Binding, Done, Interp};
use crate::run::random::Random;
use crate::{Name, Statement};

impl<'w, 's, D: Ground> Interp<'w, 's, D> {
    /// Runs a block on several threads, each with names of its own.
    pub(crate) fn threads(&mut self, count: u64, number: Option<&'s Name>, body: &'s [Statement]) -> Done {
        if count > MOST_THREADS {
            return Err(self.impossible(too_many_threads(count)));
        }
        self.world.is_crowded.store(true, Ordering::Relaxed);
        let results: Vec<Done> = std::thread::scope(|scope| {
            let forks: Vec<Interp<'w, 's, D>> = (0..count).map(|at| self.fork(at, number)).collect();
            let run = |mut fork: Interp<'w, 's, D>| {
                scope.spawn(move || {
                    fork.block(body)?;
                    fork.compare_all()
                })
            };
            let running: Vec<_> = forks.into_iter().map(run).collect();
            let panicked = || Err(self.wrong("a thread panicked".to_owned()));
            running.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
        });
        self.world.is_crowded.store(false, Ordering::Relaxed);
        results.into_iter().collect()
    }

    fn fork(&mut self, at: u64, number: Option<&Name>) -> Self {
        let copy = |binding: &Binding<D>| match binding {
            Binding::Tensor(handle) => Some(Binding::Tensor(handle.clone())),
            Binding::Param(handle) => Some(Binding::Param(handle.clone())),
            Binding::Number(number) => Some(Binding::Number(*number)),
            Binding::Note(number) => Some(Binding::Note(*number)),
            Binding::Host(buffer, values) => Some(Binding::Host(buffer.clone(), values.clone())),
            Binding::Stream(stream) => Some(Binding::Stream(stream.clone())),
            // A backward runs once.
            Binding::Token(_) => None,
        };
        let mut names: BTreeMap<String, Binding<D>> =
            self.names.iter().filter_map(|(name, binding)| Some((name.clone(), copy(binding)?))).collect();
        if let Some(number) = number {
            names.insert(number.text.clone(), Binding::Number(at));
        }
        Interp {
            world: self.world,
            names,
            model: self.model.clone(),
            origins: self.origins.clone(),
            at: self.at,
            random: Random::new(self.random.next()),
            generators: self.generators.clone(),
            line: self.line,
        }
    }
}
