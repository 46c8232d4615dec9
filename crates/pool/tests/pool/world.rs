//! A small simulated device with a pool on it.

use std::sync::Arc;

use graphgrove_device::{Device, Graphs, Memory, Streams, Work};
use graphgrove_pool::PoolError;
use graphgrove_pool::pool::{Block, Growth, Owner, Pool, PoolConfig, Range, Recorded, Request, Session};
use graphgrove_sim::{SimBuilder, SimDevice, SimStream};

pub(crate) type Result<T = (), E = PoolError> = std::result::Result<T, E>;

/// What the device maps at once, in bytes.
pub(crate) const PAGE: u64 = 4096;
/// One block of the tests, in bytes.
pub(crate) const UNIT: u64 = 1024;

pub(crate) struct World {
    pub(crate) device: Arc<SimDevice>,
    pub(crate) stream: SimStream,
    pub(crate) pool: Pool<SimDevice>,
}

/// Pieces small enough for tests to have several.
pub(crate) fn growth() -> Growth {
    Growth { small_limit: UNIT, small: 2 * PAGE, large: 4 * PAGE, unit: PAGE }
}

pub(crate) fn config() -> PoolConfig {
    PoolConfig { growth: growth(), ..PoolConfig::default() }
}

pub(crate) fn segments() -> PoolConfig {
    PoolConfig { range: Range::Never, ..config() }
}

pub(crate) fn builder() -> SimBuilder {
    SimDevice::builder().granularity(PAGE).memory_bytes(16 << 20)
}

impl World {
    pub(crate) fn new(config: PoolConfig) -> Self {
        Self::on(builder().build(), config)
    }

    pub(crate) fn on(device: SimDevice, config: PoolConfig) -> Self {
        let device = Arc::new(device);
        let stream = device.create_stream().unwrap();
        let pool = Pool::new(Arc::clone(&device), &stream, config).unwrap();
        Self { device, stream, pool }
    }

    pub(crate) fn take(&self, bytes: u64, label: &'static str) -> Block<SimDevice> {
        self.pool.allocate(request(bytes, label)).unwrap()
    }

    pub(crate) fn fill(&self, block: &Block<SimDevice>, value: u8) {
        self.device.fill(&self.stream, block.ptr(), value, block.bytes()).unwrap();
    }

    /// Checks that a block holds one value in all bytes, once the stream is done.
    pub(crate) fn holds(&self, block: &Block<SimDevice>, value: u8) -> bool {
        self.device.synchronize_stream(&self.stream).unwrap();
        let mut bytes = vec![0; block.bytes() as usize];
        self.device.read(block.ptr(), &mut bytes).unwrap();
        bytes.iter().all(|&byte| byte == value)
    }

    /// Records a body on the pool's stream.
    pub(crate) fn record(
        &self,
        body: impl FnOnce(&Session<SimDevice>) -> Result<Vec<Block<SimDevice>>>,
    ) -> Result<Recorded<SimDevice>> {
        self.pool.record(&self.stream, None, body)
    }

    /// Launches a recording once.
    pub(crate) fn launch(&self, recorded: &Recorded<SimDevice>) {
        let mut exec = self.device.instantiate(&recorded.graph).unwrap();
        self.device.launch_exec(&mut exec, &self.stream).unwrap();
        self.device.synchronize_stream(&self.stream).unwrap();
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.pool.stats().ranges.reserved
    }

    pub(crate) fn live(&self) -> u64 {
        self.pool.stats().ranges.live
    }

    /// Runs what is left and asks the checker.
    pub(crate) fn verdict(&self) {
        self.pool.audit().unwrap();
        self.device.verdict().unwrap();
    }
}

pub(crate) fn request(bytes: u64, label: &'static str) -> Request {
    Request::bytes(bytes).owner(Owner::Temporary).label(label)
}

/// Fills a block of a session with a value.
pub(crate) fn fill<D: Device>(
    session: &Session<D>,
    stream: &D::Stream,
    block: &Block<D>,
    value: u8,
) -> Result {
    session.pool().device().fill(stream, block.ptr(), value, block.bytes())?;
    Ok(())
}

/// How many cases a property is tried with, unless `PROPTEST_CASES` says otherwise.
pub(crate) fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}
