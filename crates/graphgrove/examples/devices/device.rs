//! The devices that the program runs on.

use std::sync::{Arc, OnceLock};

use graphgrove::{Device, Engine, Growth, PoolConfig};
use graphgrove_cuda::{CudaDevice, CudaError, Module};
use graphgrove_device::DeviceError;
use graphgrove_sim::SimDevice;

use crate::AnyError;
use crate::kernels::Kernels;
use crate::on_cuda::{self, CudaKernels};
use crate::on_sim::SimKernels;

/// A kind of device, with the kernels of the model for it.
pub(crate) trait Backend {
    type Device: Device;
    type Kernels: Kernels<Self::Device>;

    /// What the report calls it, once kernels were made.
    fn name(&self) -> String;

    /// The device of one run.
    fn device(&self) -> Arc<Self::Device>;

    /// The kernels for the calls of an engine.
    fn kernels(&self, engine: &Engine<Self::Device>) -> Result<Self::Kernels, AnyError>;

    /// How pools obtain memory, if not as the engine would.
    fn pool(&self) -> Option<PoolConfig>;

    /// What a checking device has found.
    fn verdict(&self, device: &Self::Device) -> Result<(), AnyError>;
}

/// Simulated devices, a new one for each run.
pub(crate) struct Simulated {
    pub(crate) seed: u64,
}

impl Backend for Simulated {
    type Device = SimDevice;
    type Kernels = SimKernels;

    fn name(&self) -> String {
        "sim".to_owned()
    }

    fn device(&self) -> Arc<SimDevice> {
        Arc::new(SimDevice::builder().seed(self.seed).granularity(4096).build())
    }

    fn kernels(&self, engine: &Engine<SimDevice>) -> Result<SimKernels, AnyError> {
        Ok(SimKernels::new(engine.device()))
    }

    fn pool(&self) -> Option<PoolConfig> {
        // Small pieces, so that the figures show what is needed and not how it is rounded.
        let growth = Growth { small_limit: 0, small: 4 << 10, large: 4 << 10, unit: 4 << 10 };
        Some(PoolConfig { growth, ..PoolConfig::default() })
    }

    /// The device looks for races and for memory that is read before its birth or after its end.
    fn verdict(&self, device: &SimDevice) -> Result<(), AnyError> {
        Ok(device.verdict()?)
    }
}

/// The first CUDA device, with its code compiled.
pub(crate) struct Cuda {
    device: Arc<CudaDevice>,
    module: Module,
    without_library: bool,
    name: String,
    /// What multiplies matrices, once kernels were made.
    products: OnceLock<&'static str>,
}

impl Cuda {
    /// Opens the device. Matrices are multiplied by a kernel if `without_library`, or if cuBLAS is missing.
    pub(crate) fn open(without_library: bool) -> Result<Self, CudaError> {
        let device = CudaDevice::open(0)?;
        let module = on_cuda::compile(&device)?;
        let (name, driver) = (device.name()?, device.driver_version()?);
        let name = format!("{name}, driver of CUDA {}.{}", driver / 1000, driver % 1000 / 10);
        Ok(Self { device: Arc::new(device), module, without_library, name, products: OnceLock::new() })
    }

    /// Whether an error says that there is nothing to run on, and not that something broke.
    pub(crate) const fn is_missing(error: &CudaError) -> bool {
        matches!(error, CudaError::NoCompiler { .. } | CudaError::Device(DeviceError::NoDevice { .. }))
    }
}

impl Backend for Cuda {
    type Device = CudaDevice;
    type Kernels = CudaKernels;

    fn name(&self) -> String {
        format!("{}, matrix products by {}", self.name, self.products.get().unwrap_or(&"nothing yet"))
    }

    fn device(&self) -> Arc<CudaDevice> {
        Arc::clone(&self.device)
    }

    fn kernels(&self, engine: &Engine<CudaDevice>) -> Result<CudaKernels, AnyError> {
        let kernels = CudaKernels::new(&self.module, engine, self.without_library)?;
        self.products.get_or_init(|| kernels.products());
        Ok(kernels)
    }

    fn pool(&self) -> Option<PoolConfig> {
        None
    }

    fn verdict(&self, _device: &CudaDevice) -> Result<(), AnyError> {
        Ok(())
    }
}
