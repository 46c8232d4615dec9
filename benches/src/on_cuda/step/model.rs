//! Forward, backward and optimiser as functions of an engine.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use graphgrove::{
    Arg, Args, Context, Engine, EngineBuilder, EngineStats, Function, FunctionOptions, LaunchDims, Layout,
    ParamSet, Result, Tensor, args,
};
use graphgrove_cuda::{CudaDevice, CudaError, Kernel, Module};
use graphgrove_device::DevicePtr;

use super::layers::layers;

const BATCH: u32 = 4;
const CLASSES: u32 = 1000;
const FEATURES: u32 = 2048;

/// Stand-ins that move as many bytes as their originals have to.
const SOURCE: &str = r#"
extern "C" __global__ void mix(const float *a, unsigned na, const float *b, unsigned nb, float *y, unsigned n, float scale) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = scale * a[i % na] + 0.01f * b[i % nb];
}
extern "C" __global__ void update(float *w, const float *g, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) w[i] -= 0.001f * g[i];
}
"#;

pub(crate) fn compile(device: &CudaDevice) -> std::result::Result<Module, CudaError> {
    let code = device.compile(SOURCE, &[])?;
    // SAFETY: both kernels touch as many elements behind their pointers as their numbers say, which are those of the tensors there.
    unsafe { device.load(&code) }
}

type Cx<'a> = Context<'a, CudaDevice>;

#[derive(Clone)]
struct Kernels {
    mix: Kernel,
    update: Kernel,
}

impl Kernels {
    /// A new tensor of `n` elements, made of two others.
    fn mix(&self, cx: &mut Cx<'_>, a: &Tensor, b: &Tensor, n: u32, scale: f32) -> Result<Tensor> {
        let out = cx.empty(Layout::of::<f32>(&[n.into()])?)?;
        let args = Args::new().read(a.address()?).scalar(elements(a)).read(b.address()?).scalar(elements(b));
        let args = args.write(out.address()?).scalar(n).scalar(scale);
        cx.launch(&self.mix, LaunchDims::for_elements(n), &args)?;
        Ok(out)
    }

    fn update(&self, cx: &mut Cx<'_>, w: DevicePtr, g: &Tensor) -> Result<()> {
        let args = Args::new().read_write(w).read(g.address()?).scalar(elements(g));
        cx.launch(&self.update, LaunchDims::for_elements(elements(g)), &args)
    }
}

fn elements(tensor: &Tensor) -> u32 {
    tensor.layout().elements() as u32
}

/// An engine that trains.
pub(crate) struct Training {
    engine: Engine<CudaDevice>,
    forward: Function<CudaDevice>,
    backward: Function<CudaDevice>,
    optimiser: Function<CudaDevice>,
    params: ParamSet,
    picture: Tensor,
}

impl Training {
    pub(crate) fn new(
        device: &Arc<CudaDevice>,
        module: &Module,
        builder: EngineBuilder,
    ) -> std::result::Result<Self, Box<dyn Error>> {
        let engine = builder.build(Arc::clone(device))?;
        let kernels = Kernels { mix: module.kernel("mix")?, update: module.kernel("update")? };
        let (of_forward, of_backward) = (kernels.clone(), kernels.clone());
        let forward = engine.function("forward", move |cx| forward(&of_forward, cx));
        let backward = engine.function("backward", move |cx| backward(&of_backward, cx));
        let writes = FunctionOptions::new().mutates_params();
        let optimiser = engine.function_with("optimiser", writes, move |cx| {
            for param in 0..parameters() {
                let (w, g) = (cx.param(param)?.address()?, cx.take(param)?);
                kernels.update(cx, w, &g)?;
            }
            Ok(Vec::new())
        });
        let constant = |count: u32, value: f32| engine.tensor(&[count.into()], &vec![value; count as usize]);
        let mut params = Vec::new();
        for layer in layers() {
            params.push(constant(layer.weights(), 0.5)?);
            params.push(constant(layer.to, 1.0)?);
            params.push(constant(layer.to, 0.1)?);
        }
        params.push(constant(FEATURES * CLASSES, 0.2)?);
        params.push(constant(CLASSES, 0.0)?);
        let picture = constant(BATCH * 3 * 224 * 224, 1.0)?;
        let params = ParamSet::new(params)?;
        Ok(Self { engine, forward, backward, optimiser, params, picture })
    }

    /// One step. When its last call has returned.
    pub(crate) fn step(&self) -> Result<Instant> {
        self.engine.begin_step()?;
        let (outputs, token) = self.forward.with(&self.params).forward(args![&self.picture])?;
        let [logits] = outputs.into_array()?;
        let gradients = self.backward.with(&self.params).backward(token, args![logits])?.into_vec()?;
        let gradients: Vec<Arg<'_, CudaDevice>> = gradients.into_iter().map(Arg::Given).collect();
        drop(self.optimiser.with(&self.params).call(gradients)?);
        Ok(Instant::now())
    }

    pub(crate) fn stats(&self) -> Result<EngineStats> {
        self.engine.stats()
    }

    /// Some of the weights.
    pub(crate) fn weights(&self) -> Result<Vec<f32>> {
        let mut weights = Vec::new();
        for param in self.params.tensors().iter().step_by(20) {
            weights.extend(self.engine.read::<f32>(param)?.into_iter().take(64));
        }
        Ok(weights)
    }
}

/// Parameters of the network.
fn parameters() -> usize {
    3 * layers().len() + 2
}

/// Saves what each convolution, normalisation and activation makes, and what the last layer makes.
fn forward(kernels: &Kernels, cx: &mut Cx<'_>) -> Result<Vec<Tensor>> {
    let mut x = cx.take(0)?;
    for (number, layer) in layers().iter().enumerate() {
        let n = layer.elements(BATCH);
        for (part, scale) in [(0, 0.9), (1, 0.8), (2, 0.7)] {
            let param = cx.param(3 * number + part)?.clone();
            x = kernels.mix(cx, &x, &param, n, scale)?;
            cx.save(&x);
        }
    }
    let last = cx.param(parameters() - 2)?.clone();
    let logits = kernels.mix(cx, &x, &last, BATCH * CLASSES, 1.0)?;
    cx.save(&logits);
    Ok(vec![logits])
}

/// Makes a gradient for each parameter, and gives every saved output back as soon as it was read.
fn backward(kernels: &Kernels, cx: &mut Cx<'_>) -> Result<Vec<Tensor>> {
    let (layers, count) = (layers(), parameters());
    let mut gradients: Vec<Option<Tensor>> = vec![None; count];
    let mut dy = cx.take(0)?;
    let logits = cx.take_saved(3 * layers.len())?;
    gradients[count - 2] = Some(kernels.mix(cx, &dy, &logits, FEATURES * CLASSES, 0.1)?);
    gradients[count - 1] = Some(kernels.mix(cx, &dy, &logits, CLASSES, 0.1)?);
    drop(logits);
    for (number, layer) in layers.iter().enumerate().rev() {
        let n = layer.elements(BATCH);
        for part in (0..3).rev() {
            let saved = cx.take_saved(3 * number + part)?;
            let param = cx.param(3 * number + part)?.clone();
            gradients[3 * number + part] = Some(kernels.mix(cx, &dy, &saved, elements(&param), 0.1)?);
            dy = kernels.mix(cx, &dy, &saved, n, 0.5)?;
        }
    }
    Ok(gradients.into_iter().flatten().collect())
}
