//! The simulated device: kernels are closures, everything is checked and counted, and calls go wrong when they are told to.

use std::sync::Arc;

use graphgrove::philox::{draw, unit_f32};
use graphgrove::{Args, EngineBuilder};
use graphgrove_device::Memory;
use graphgrove_pool::pool::{Growth, PoolConfig};
use graphgrove_sim::{CallCounts, Fault, KernelFault, KernelScope, SimDevice, SimKernel};

use crate::mixed;
use crate::run::body::{Elements, Second};
use crate::run::ground::Ground;
use crate::run::task::{At, Filling, Lie, Task};

/// The memory of the device unless a scenario says otherwise, in bytes.
const MEMORY: u64 = 256 << 20;

/// How long a call of the driver takes by the clock of an engine, in nanoseconds.
const CALL_NS: u64 = 1000;

/// A device whose order of work depends on the seed, with so many bytes of memory.
pub(crate) fn new(seed: u64, memory: Option<u64>) -> SimDevice {
    SimDevice::builder().seed(seed).memory_bytes(memory.unwrap_or(MEMORY)).granularity(4096).build()
}

impl Ground for SimDevice {
    /// Any device can make a kernel of a closure, so the device is all that it takes.
    type Code = Arc<Self>;

    fn kernels(device: &Arc<Self>, task: Task, args: Args) -> Result<Vec<(SimKernel, Args)>, String> {
        let kernel = match task {
            Task::Elements { a, op, to } => elements(device, a, op, to),
            Task::MatMul { x, y, to } => matmul(device, x, y, to),
            Task::Sum { from, to } => {
                let last = from.shape.last().map_or(1, |last| *last as usize).max(1);
                device.kernel("sum", move |scope| {
                    let values = read(&from, scope, 0)?;
                    let sum = |row: &[f32]| row.iter().fold(0.0, |sum, value| sum + value);
                    let sums: Vec<f32> = values.chunks(last).map(sum).collect();
                    write(&to, scope, 1, &sums)
                })
            }
            Task::Fill { fill, to } => {
                let values: Vec<f32> = match fill {
                    Filling::Same(value) => vec![value; to.count() as usize],
                    Filling::Counting => (0..to.count()).map(|at| at as f32).collect(),
                    Filling::Values(values) => values,
                };
                device.kernel("fill", move |scope| write(&to, scope, 0, &values))
            }
            Task::Draw { base, to } => device.kernel("draw", move |scope| {
                let state = scope.read::<u64>(0, 2)?;
                let (seed, first) = (state.get(0), state.get(1).wrapping_add(base));
                let number = |at: u64| unit_f32(draw(seed, first.wrapping_add(at))[0]);
                let values: Vec<f32> = (0..to.count()).map(number).collect();
                write(&to, scope, 1, &values)
            }),
        };
        Ok(vec![(kernel, args)])
    }

    /// Pools grow in small steps, so that what they hold can be told from what they need. An engine's clock stands still but for calls of
    /// the driver, so that what it measures depends on the program alone.
    fn set_up(device: &Arc<Self>, builder: EngineBuilder) -> EngineBuilder {
        let growth = Growth { small_limit: 2048, small: 4096, large: 16384, unit: 4096 };
        let clock = Arc::clone(device);
        builder
            .pool(PoolConfig { growth, ..PoolConfig::default() })
            .clock(move || CALL_NS * clock.counts().total())
    }

    fn driver_calls(&self) -> Option<CallCounts> {
        Some(self.counts())
    }

    fn plan_fault(&self, fault: Fault) {
        self.inject(fault);
    }

    fn forget_faults(&self) {
        self.clear_faults();
    }

    fn found(&self) -> Result<(), String> {
        self.verdict().map_err(|found| found.to_string())
    }

    fn has_everything_back(&self) -> Result<(), String> {
        let left = self.live_segments();
        if left > 0 {
            return Err(format!("{left} segments are left on the device"));
        }
        let info = self.memory_info().map_err(|error| error.to_string())?;
        if info.free != info.total {
            return Err(format!("{} bytes are left on the device", info.total - info.free));
        }
        Ok(())
    }
}

fn read(lie: &Lie, scope: &KernelScope<'_>, argument: usize) -> Result<Vec<f32>, KernelFault> {
    if lie.dense {
        return Ok(scope.read::<f32>(argument, lie.count() as usize)?.to_vec());
    }
    let element = |at: u64| Ok(scope.read_at::<f32>(argument, at as usize, 1)?.get(0));
    lie.places().map(element).collect()
}

fn write(lie: &Lie, scope: &KernelScope<'_>, argument: usize, values: &[f32]) -> Result<(), KernelFault> {
    if lie.dense {
        scope.write::<f32>(argument, lie.count() as usize)?.copy_from(values);
        return Ok(());
    }
    for (at, value) in lie.places().zip(values) {
        scope.write_at::<f32>(argument, at as usize, 1)?.set(0, *value);
    }
    Ok(())
}

fn second(second: &Second<At>, scope: &KernelScope<'_>) -> Result<Vec<f32>, KernelFault> {
    match second {
        Second::Number(number) => Ok(vec![*number]),
        Second::Tensor(at) => read(&at.lie, scope, at.argument),
    }
}

fn elements(device: &SimDevice, a: Lie, op: Elements<At>, to: At) -> SimKernel {
    let name = match &op {
        Elements::Unary(op) => op.word(),
        Elements::Binary(op, _) => op.word(),
        Elements::Mix(..) => "mix",
        Elements::Copy(_) => "copy",
    };
    let at = |values: &[f32], i: usize| values[i % values.len()];
    device.kernel(name, move |scope| {
        // Everything is read before anything is written, so that operands may overlap.
        let values: Vec<f32> = match &op {
            Elements::Unary(op) => read(&a, scope, 0)?.into_iter().map(|a| op.of(a)).collect(),
            Elements::Binary(op, b) => {
                let b = second(b, scope)?;
                read(&a, scope, 0)?.into_iter().enumerate().map(|(i, a)| op.of(a, at(&b, i))).collect()
            }
            Elements::Mix(b, k) => {
                let (b, k) = (second(b, scope)?, second(k, scope)?);
                let a = read(&a, scope, 0)?.into_iter().enumerate();
                a.map(|(i, a)| mixed(a, at(&b, i), at(&k, i))).collect()
            }
            Elements::Copy(b) => {
                let b = second(b, scope)?;
                (0..a.count() as usize).map(|i| at(&b, i)).collect()
            }
        };
        write(&to.lie, scope, to.argument, &values)
    })
}

fn matmul(device: &SimDevice, x: Lie, y: Lie, to: Lie) -> SimKernel {
    let of = |lie: &Lie| lie.shape.last().map_or(1, |last| *last as usize);
    let (k, n) = (of(&x), of(&y));
    device.kernel("matmul", move |scope| {
        let (x, y) = (read(&x, scope, 0)?, read(&y, scope, 1)?);
        let mut values = vec![0.0; to.count() as usize];
        for (at, value) in values.iter_mut().enumerate() {
            let (row, column) = (at / n, at % n);
            for i in 0..k {
                *value += x[row * k + i] * y[i * n + column];
            }
        }
        write(&to, scope, 2, &values)
    })
}
