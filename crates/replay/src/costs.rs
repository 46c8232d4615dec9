//! Whether an input's address is patched into the recorded work or its bytes are copied: what costs less.

use std::time::{Duration, Instant};

use graphgrove_device::{CaptureGuard, CaptureMode, Device, GatherRow, SegmentMemory};

use crate::{Error, Route};

/// What the two ways cost on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Nanoseconds for an address that is written into one node.
    pub patch_ns: f64,
    /// Nanoseconds for each piece that a gather node copies, whatever its length.
    pub copy_ns: f64,
    /// Bytes that a gather node copies in a nanosecond.
    pub bytes_per_ns: f64,
}

impl Default for Costs {
    /// What an H200 needs under CUDA 13.0: 64 MiB in 47 us, 32 pieces in about 1 us, 0.2 to 0.45 us for each patched node.
    fn default() -> Self {
        Self { patch_ns: 350.0, copy_ns: 40.0, bytes_per_ns: 1400.0 }
    }
}

impl Costs {
    /// The cheaper way for an input of `bytes` whose address stands in `nodes` nodes; it is copied where that is not known.
    #[must_use]
    pub fn choose(&self, bytes: u64, nodes: Option<usize>) -> Route {
        let copy = self.copy_ns + bytes as f64 / self.bytes_per_ns;
        match nodes {
            Some(nodes) if self.patch_ns * (nodes as f64) < copy => Route::Patched,
            _ => Route::Copied,
        }
    }

    /// Measures a device: a gather of one large piece against one of a small one, and a patched copy node against the same
    /// graph left alone. It takes some milliseconds and 16 MiB of device memory.
    ///
    /// # Errors
    /// [`Error::Device`]
    pub fn measure<D: Device>(device: &D, stream: &D::Stream) -> Result<Self, Error> {
        const LARGE: u64 = 8 << 20;
        const SMALL: u64 = 256;
        let (from, to) = (device.allocate(LARGE)?, device.allocate(LARGE)?);
        device.fill(stream, from.base(), 0, LARGE)?;
        let gather = |bytes: u64| -> Result<D::Exec, Error> {
            let capture = CaptureGuard::begin(device, stream, CaptureMode::ThreadLocal)?;
            device.gather(stream, &[GatherRow { to: to.base(), bytes }], &[from.base()])?;
            Ok(device.instantiate(&capture.end()?)?)
        };
        let (mut small, mut large) = (gather(SMALL)?, gather(LARGE)?);
        let to_completion = |exec: &mut D::Exec| -> Result<f64, Error> {
            median(9, || {
                device.launch_exec(exec, stream)?;
                Ok(device.synchronize_stream(stream)?)
            })
        };
        let (small_ns, large_ns) = (to_completion(&mut small)?, to_completion(&mut large)?);

        let capture = CaptureGuard::begin(device, stream, CaptureMode::ThreadLocal)?;
        let node = device.copy(stream, to.base(), from.base(), SMALL)?;
        let mut exec = device.instantiate(&capture.end()?)?;
        let mut patch_ns = 0.0;
        if let Some(node) = node {
            let mut turn = false;
            patch_ns = median(33, || {
                turn = !turn;
                let at = from.base().checked_add(if turn { SMALL } else { 0 }).unwrap_or(from.base());
                Ok(device.patch_copy(&mut exec, node, to.base(), at)?)
            })?;
        }
        device.synchronize_stream(stream)?;
        let bytes_per_ns = rate([SMALL, LARGE], [small_ns, large_ns]);
        Ok(Self { patch_ns, copy_ns: Self::default().copy_ns, bytes_per_ns })
    }
}

/// Bytes a nanosecond, from two lengths and the nanoseconds that they take; as if the second took one more, if it takes none.
fn rate(bytes: [u64; 2], ns: [f64; 2]) -> f64 {
    (bytes[1] - bytes[0]) as f64 / (ns[1] - ns[0]).max(1.0)
}

fn median(times: usize, mut run: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let mut taken = Vec::with_capacity(times);
    for _ in 0..times {
        let start = Instant::now();
        run()?;
        taken.push(start.elapsed());
    }
    taken.sort_unstable();
    Ok(taken.get(times / 2).copied().unwrap_or(Duration::ZERO).as_nanos() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphgrove_device::Streams;
    use graphgrove_sim::SimDevice;

    #[test]
    fn large_inputs_in_few_nodes_are_patched_and_small_ones_copied() {
        let costs = Costs { patch_ns: 300.0, copy_ns: 50.0, bytes_per_ns: 1000.0 };
        assert_eq!(costs.choose(256 << 20, Some(3)), Route::Patched);
        assert_eq!(costs.choose(4096, Some(1)), Route::Copied);
        assert_eq!(costs.choose(1 << 20, Some(4)), Route::Copied);
        assert_eq!(costs.choose(1 << 20, Some(3)), Route::Patched);
        assert_eq!(costs.choose(256 << 20, None), Route::Copied);
    }

    #[test]
    fn a_rate_is_what_the_longer_piece_has_more_in_the_time_that_it_takes_longer() {
        assert!((rate([100, 4100], [50.0, 54.0]) - 1000.0).abs() < 1e-9);
        assert!((rate([100, 4100], [50.0, 40.0]) - 4000.0).abs() < 1e-9, "as where nothing is really copied");
    }

    #[test]
    fn the_median_is_the_time_of_the_middle_run() {
        let mut run = 0;
        let ns = median(5, || {
            run += 1;
            std::thread::sleep(Duration::from_millis([0, 4, 8, 0, 4][run - 1]));
            Ok(())
        });
        // A sleep may last longer, and never shorter.
        assert!(ns.unwrap() >= 4e6);
    }

    #[test]
    fn a_device_is_measured_without_a_trace() {
        let device = SimDevice::new();
        let stream = device.create_stream().unwrap();
        let before = device.live_segments();
        let costs = Costs::measure(&device, &stream).unwrap();
        assert!(costs.bytes_per_ns > 0.0 && costs.bytes_per_ns.is_finite() && costs.patch_ns >= 0.0);
        assert_eq!(device.live_segments(), before);
        device.verdict().unwrap();
    }
}
