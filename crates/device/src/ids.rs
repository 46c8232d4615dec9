//! Identities, each its own type, so that a stream can never be taken for an event.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($repr:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($repr);

        impl $name {
            /// Wraps a number that the device chose.
            #[must_use]
            pub const fn new(value: $repr) -> Self {
                Self(value)
            }

            /// The number itself.
            #[must_use]
            pub const fn get(self) -> $repr {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// One opened device. Two openings of the same hardware are two devices, since handles do not pass between them.
    DeviceId(u32),
    "device "
);
id!(
    /// A stream of one device. Ids are not used again after the stream is gone.
    StreamId(u64),
    "stream "
);
id!(
    /// An event of one device. Ids are not used again after the event is gone.
    EventId(u64),
    "event "
);
id!(
    /// One capture, from its begin to its end. Ids are not used again.
    CaptureId(u64),
    "capture "
);
id!(
    /// A node of a graph: its place in the order in which the capture met it, counted from 0.
    ///
    /// It names the same node in the graph and in every exec that was instantiated from it. Nodes that other code added to the
    /// capture behind the device's back come after all of these, in the driver's order.
    NodeId(u32),
    "node "
);
id!(
    /// The driver's own handle of a stream, as a number (for CUDA, the value of a `CUstream`).
    ///
    /// It is what a caller that brings its own stream hands to [`Streams::adopt_stream`](crate::Streams::adopt_stream).
    RawStream(u64),
    "raw stream "
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_prints_what_it_names() {
        assert_eq!(StreamId::new(3).to_string(), "stream 3");
        assert_eq!(NodeId::new(0).to_string(), "node 0");
        assert_eq!(CaptureId::new(7).get(), 7);
    }
}
