//! Functions: what is registered, and the handle by which it is called.

use std::sync::Arc;

use graphgrove_device::Device;
use graphgrove_replay::ParamSet;
use graphgrove_storage::Tensor;
use graphgrove_tree::OldOutput;

use crate::context::Context;
use crate::engine::Shared;
use crate::{Arg, Backward, Error, FunctionName, Mode, Outputs, Result};

pub(crate) type Body<D> = dyn Fn(&mut Context<'_, D>) -> Result<Vec<Tensor>> + Send + Sync;

/// What is fixed when a function is registered.
#[derive(Clone, Debug, Default)]
pub struct FunctionOptions {
    pub(crate) mode: Option<Mode>,
    pub(crate) old_outputs: OldOutput,
    pub(crate) mutates: Vec<usize>,
    pub(crate) mutates_params: bool,
    pub(crate) only_for: Option<Vec<Vec<u64>>>,
    pub(crate) inputs: Option<usize>,
}

impl FunctionOptions {
    /// The engine's mode, outputs that go stale at a new step, and no input that is written to.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How its calls run, whatever the engine's mode.
    #[must_use]
    pub fn mode(self, mode: Mode) -> Self {
        Self { mode: Some(mode), ..self }
    }

    /// What becomes of its outputs at a new step.
    #[must_use]
    pub fn old_outputs(self, rule: OldOutput) -> Self {
        Self { old_outputs: rule, ..self }
    }

    /// It writes to these inputs. What is written is there for the caller after each call, whichever way that runs.
    ///
    /// A launch that writes to an input that is not declared is refused: the engine gives an input that is only read to a recording
    /// as a copy, so that the caller would see the write at some calls and not at others.
    #[must_use]
    pub fn mutates(self, inputs: impl IntoIterator<Item = usize>) -> Self {
        Self { mutates: inputs.into_iter().collect(), ..self }
    }

    /// It writes to its parameters.
    #[must_use]
    pub fn mutates_params(self) -> Self {
        Self { mutates_params: true, ..self }
    }

    /// It takes so many inputs, values and host memory among them; parameters and what a forward has saved do not count. A call that
    /// brings more or fewer is [`Error::InputCount`]. Without this it takes what it is given, and what it does not look at is ignored.
    #[must_use]
    pub fn inputs(self, count: usize) -> Self {
        Self { inputs: Some(count), ..self }
    }

    /// It is recorded only for these [values](Arg::Value), each all values of one call in order; with other ones it runs plainly. A
    /// function whose value may be any length has a bound for its recordings so.
    #[must_use]
    pub fn only_for<V: Into<Vec<u64>>>(self, values: impl IntoIterator<Item = V>) -> Self {
        Self { only_for: Some(values.into_iter().map(Into::into).collect()), ..self }
    }
}

/// A function as the engine keeps it.
pub(crate) struct FunctionData<D: Device> {
    /// Which function of the engine it is.
    pub(crate) id: usize,
    /// Whether its mode is `Auto`.
    pub(crate) is_auto: bool,
    pub(crate) name: Arc<str>,
    pub(crate) body: Arc<Body<D>>,
    pub(crate) options: FunctionOptions,
}

impl<D: Device> FunctionData<D> {
    /// As events name it.
    pub(crate) fn event_name(&self) -> FunctionName {
        FunctionName { id: self.id, name: Arc::clone(&self.name) }
    }
}

/// A function that is registered with an engine. Clones are the same function, and it stays registered when all of them are dropped.
pub struct Function<D: Device> {
    pub(crate) engine: Arc<Shared<D>>,
    pub(crate) index: usize,
}

impl<D: Device> Clone for Function<D> {
    fn clone(&self) -> Self {
        Self { engine: Arc::clone(&self.engine), index: self.index }
    }
}

impl<D: Device> Function<D> {
    /// Calls the function on the engine's stream, without parameters: `f.call(args![&x, y])`.
    ///
    /// # Errors
    /// Whatever the function returns; [`Error::Storage`] for an input whose value is gone; [`Error::Pool`] and [`Error::Device`].
    #[inline]
    pub fn call<'a>(&self, args: impl AsMut<[Arg<'a, D>]>) -> Result<Outputs>
    where
        D: 'a,
    {
        self.calling().call(args)
    }

    /// Calls the function as a [forward](Calling::forward) on the engine's stream, without parameters.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn forward<'a>(&self, args: impl AsMut<[Arg<'a, D>]>) -> Result<(Outputs, Backward<D>)>
    where
        D: 'a,
    {
        self.calling().forward(args)
    }

    /// Calls the function as the [backward](Calling::backward) of a forward, on the engine's stream, without parameters.
    ///
    /// # Errors
    /// As [`Calling::backward`].
    pub fn backward<'a>(
        &self,
        token: Backward<D>,
        args: impl IntoIterator<Item = Arg<'a, D>>,
    ) -> Result<Outputs>
    where
        D: 'a,
    {
        self.calling().backward(token, args)
    }

    /// A call whose parameters and stream are yet to be said.
    #[inline]
    pub fn calling(&self) -> Calling<'_, D> {
        Calling { function: self, params: None, stream: None }
    }

    /// A call with parameters.
    #[inline]
    pub fn with<'c>(&'c self, params: &'c ParamSet) -> Calling<'c, D> {
        Calling { params: Some(params), ..self.calling() }
    }

    /// A call on another stream than the engine's.
    #[inline]
    pub fn on<'c>(&'c self, stream: &'c D::Stream) -> Calling<'c, D> {
        Calling { stream: Some(stream), ..self.calling() }
    }
}

impl<D: Device> std::fmt::Debug for Function<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Function").field("index", &self.index).finish_non_exhaustive()
    }
}

/// A call that is about to be made.
#[must_use = "nothing is called yet"]
pub struct Calling<'c, D: Device> {
    function: &'c Function<D>,
    params: Option<&'c ParamSet>,
    stream: Option<&'c D::Stream>,
}

impl<'c, D: Device> Calling<'c, D> {
    /// The same call with parameters.
    pub fn with(self, params: &'c ParamSet) -> Self {
        Self { params: Some(params), ..self }
    }

    /// The same call on another stream than the engine's.
    pub fn on(self, stream: &'c D::Stream) -> Self {
        Self { stream: Some(stream), ..self }
    }

    /// Makes the call, which leaves nothing for a backward.
    ///
    /// # Errors
    /// As [`Function::call`].
    #[inline]
    pub fn call<'a>(self, mut args: impl AsMut<[Arg<'a, D>]>) -> Result<Outputs>
    where
        D: 'a,
    {
        let Self { function, params, stream } = self;
        function.engine.call(function.index, params, stream, args.as_mut())
    }

    /// Makes the call as a forward: what the function saves lives until its backward has run or the token is dropped.
    ///
    /// # Errors
    /// As [`Function::call`].
    pub fn forward<'a>(self, mut args: impl AsMut<[Arg<'a, D>]>) -> Result<(Outputs, Backward<D>)>
    where
        D: 'a,
    {
        let Self { function, params, stream } = self;
        function.engine.forward(function.index, params, stream, args.as_mut())
    }

    /// Makes the call as the backward of the forward that `token` stands for. The function finds what that has saved by
    /// [`Context::saved`].
    ///
    /// # Errors
    /// As [`Function::call`], and [`Error::ForeignHandle`]. The backward is given up then.
    pub fn backward<'a>(
        self,
        token: Backward<D>,
        args: impl IntoIterator<Item = Arg<'a, D>>,
    ) -> Result<Outputs>
    where
        D: 'a,
    {
        let Self { function, params, stream } = self;
        if !Arc::ptr_eq(&function.engine, &token.engine) {
            return Err(Error::ForeignHandle { what: "token" });
        }
        function.engine.backward(function.index, params, stream, token, args)
    }
}
