//! Trains a softmax classifier on the iris data set: one function, recorded once and replayed for every mini-batch, on the
//! simulated device. Each step's loss is compared with the same kernels run eagerly.
//!
//! `cargo run --release -p graphgrove --example train`

use std::cell::RefCell;

use graphgrove::{Context, Engine, Input};
use graphgrove_device::{Args, DevicePtr, LaunchDims, Memory, SegmentMemory, Streams, Work};
use graphgrove_pool::PoolConfig;
use graphgrove_sim::{SimDevice, SimKernel, kernels};

const FEATURES: u32 = 4;
const CLASSES: u32 = 3;
const BATCH: u32 = 30;
const EPOCHS: usize = 40;
const RATE: f32 = 0.05;

struct Kernels {
    matmul: SimKernel,
    /// `(read logits, read labels, write gradient, write loss, u32 m, u32 n)`: softmax cross entropy, averaged over `m` rows.
    loss: SimKernel,
    /// `(read x, read g, read_write w, u32 m, u32 n, u32 k, f32 rate)`: `w -= rate * transpose(x) * g`.
    update: SimKernel,
}

fn make_kernels(device: &SimDevice) -> Kernels {
    let loss = device.kernel("softmax loss", |scope| {
        let (m, n) = (scope.scalar::<u32>(4)? as usize, scope.scalar::<u32>(5)? as usize);
        let (logits, labels) = (scope.read::<f32>(0, m * n)?, scope.read::<u32>(1, m)?);
        let (gradient, loss) = (scope.write::<f32>(2, m * n)?, scope.write::<f32>(3, 1)?);
        let mut sum = 0.0;
        for row in 0..m {
            let exps: Vec<f32> = (0..n).map(|column| logits.get(row * n + column).exp()).collect();
            let total: f32 = exps.iter().sum();
            let label = labels.get(row) as usize;
            for (column, exp) in exps.iter().enumerate() {
                let hit = if column == label { 1.0 } else { 0.0 };
                gradient.set(row * n + column, (exp / total - hit) / m as f32);
            }
            sum -= (exps[label] / total).ln();
        }
        loss.set(0, sum / m as f32);
        Ok(())
    });
    let update = device.kernel("update", |scope| {
        let size = |argument| scope.scalar::<u32>(argument).map(|n| n as usize);
        let (m, n, k, rate) = (size(3)?, size(4)?, size(5)?, scope.scalar::<f32>(6)?);
        let (x, g, w) =
            (scope.read::<f32>(0, m * k)?, scope.read::<f32>(1, m * n)?, scope.read_write::<f32>(2, k * n)?);
        for i in 0..k {
            for j in 0..n {
                let sum: f32 = (0..m).map(|row| x.get(row * k + i) * g.get(row * n + j)).sum();
                w.set(i * n + j, w.get(i * n + j) - rate * sum);
            }
        }
        Ok(())
    });
    Kernels { matmul: kernels::matmul(device), loss, update }
}

/// One training step, on memory from wherever `allocate` has it. Returns what holds the loss.
fn step<B>(
    kernels: &Kernels,
    [x, labels, w]: [DevicePtr; 3],
    allocate: impl Fn(u64) -> graphgrove::Result<B>,
    ptr: impl Fn(&B) -> DevicePtr,
    launch: impl Fn(&SimKernel, &Args) -> graphgrove::Result<()>,
) -> graphgrove::Result<B> {
    let bytes = u64::from(BATCH * CLASSES * 4);
    let (logits, gradient, loss) = (allocate(bytes)?, allocate(bytes)?, allocate(4)?);
    let args = Args::new().read(x).read(w).write(ptr(&logits)).scalar(BATCH).scalar(CLASSES).scalar(FEATURES);
    launch(&kernels.matmul, &args)?;
    let args = Args::new().read(ptr(&logits)).read(labels).write(ptr(&gradient)).write(ptr(&loss));
    launch(&kernels.loss, &args.scalar(BATCH).scalar(CLASSES))?;
    let args = Args::new().read(x).read(ptr(&gradient)).read_write(w);
    launch(&kernels.update, &args.scalar(BATCH).scalar(CLASSES).scalar(FEATURES).scalar(RATE))?;
    Ok(loss)
}

/// The data set on the device, shuffled by a fixed stride so that every mini-batch has all classes.
fn upload_data(
    device: &SimDevice,
) -> Result<Vec<[<SimDevice as Memory>::Segment; 2]>, Box<dyn std::error::Error>> {
    let data = linfa_datasets::iris();
    let (records, targets) = (data.records(), data.targets());
    let rows: Vec<usize> = (0..records.nrows()).map(|i| i * 37 % records.nrows()).collect();
    rows.chunks_exact(BATCH as usize)
        .map(|rows| {
            let values = rows.iter().flat_map(|&row| records.row(row).to_vec());
            let x: Vec<u8> = values.flat_map(|value| (value as f32).to_le_bytes()).collect();
            let labels: Vec<u8> = rows.iter().flat_map(|&row| (targets[row] as u32).to_le_bytes()).collect();
            let segments = [device.allocate(x.len() as u64)?, device.allocate(labels.len() as u64)?];
            device.write(segments[0].base(), &x)?;
            device.write(segments[1].base(), &labels)?;
            Ok(segments)
        })
        .collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = SimDevice::builder().seed(1).build();
    let batches = upload_data(&device)?;
    let weights = [device.allocate(256)?, device.allocate(256)?];
    for weight in &weights {
        device.write(weight.base(), &[0; (FEATURES * CLASSES * 4) as usize])?;
    }

    let engine = Engine::new(device.clone(), PoolConfig::default())?;
    let kernels = make_kernels(&device);
    let train = engine.function("train step", move |cx: &Context<'_, SimDevice>| {
        let places = [cx.input(0), cx.input(1), cx.parameter(0)];
        let launch =
            |kernel: &SimKernel, args: &Args| cx.launch(kernel, LaunchDims::for_elements(BATCH), args);
        Ok(vec![step(&kernels, places, |bytes| cx.allocate(bytes), graphgrove::Buffer::ptr, launch)?])
    });

    let (eager, stream) = (make_kernels(&device), device.create_stream()?);
    for epoch in 0..EPOCHS {
        let mut mean = 0.0;
        for [x, labels] in &batches {
            let inputs = [Input::Staged(x.base(), x.bytes()), Input::Staged(labels.base(), labels.bytes())];
            let outputs = train.call(&[weights[0].base()], &inputs)?;
            let mut loss = [0; 4];
            engine.read(&outputs[0], &mut loss)?;

            let places = [x.base(), labels.base(), weights[1].base()];
            let launch = |kernel: &SimKernel, args: &Args| {
                device.launch(&stream, kernel, LaunchDims::for_elements(BATCH), args)?;
                Ok(())
            };
            // Temporaries are kept until the work that uses them is over.
            let kept = RefCell::new(Vec::new());
            let allocate = |bytes| {
                let segment = device.allocate(bytes)?;
                let at = segment.base();
                kept.borrow_mut().push(segment);
                Ok(at)
            };
            let expected = step(&eager, places, allocate, |at| *at, launch)?;
            device.synchronize_stream(&stream)?;
            let mut eager_loss = [0; 4];
            device.read(expected, &mut eager_loss)?;
            if loss != eager_loss {
                return Err(format!("epoch {epoch}: the loss differs from the eager run's").into());
            }
            mean += f32::from_le_bytes(loss) / batches.len() as f32;
        }
        if epoch % 10 == 0 || epoch + 1 == EPOCHS {
            println!("epoch {epoch:2}: loss {mean:.4}");
        }
    }
    device.verdict()?;
    let stats = engine.stats();
    println!(
        "{} warm-up, {} recording, {} replays; every loss equals the eager run's",
        stats.warm_ups, stats.recordings, stats.replays
    );
    print!("{}", engine.outline());
    Ok(())
}
