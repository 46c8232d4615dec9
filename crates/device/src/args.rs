//! Kernel arguments, with their pointers declared.

use smallvec::SmallVec;

use crate::DevicePtr;

/// What a kernel does with the memory behind a pointer argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// It only reads.
    Read,
    /// It only writes.
    Write,
    /// It reads and writes.
    ReadWrite,
}

impl Access {
    /// Whether the kernel may read.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }

    /// Whether the kernel may write.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }
}

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArgKind {
    /// A device address, and what the kernel does behind it.
    Pointer(Access),
    /// A plain number.
    Scalar,
    /// A struct by value. Pointers inside of it are not known to the engine, so they cannot be patched.
    Blob,
}

/// Where one argument lies in the argument bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ArgField {
    /// Bytes from the start of the argument bytes, a multiple of 8.
    pub offset: u32,
    /// Size of the argument in bytes.
    pub bytes: u32,
    /// What it is.
    pub kind: ArgKind,
}

mod sealed {
    pub trait Sealed {}
}

/// A number that can be a kernel argument.
pub trait Scalar: Copy + sealed::Sealed {
    /// The size in bytes, at most 8.
    const BYTES: u32;

    /// The value in the low bytes of a word, as a little-endian device reads it.
    fn to_word(self) -> u64;
}

macro_rules! scalars {
    ($($type:ty => |$value:ident| $word:expr;)*) => {$(
        impl sealed::Sealed for $type {}
        impl Scalar for $type {
            const BYTES: u32 = size_of::<$type>() as u32;

            fn to_word(self) -> u64 {
                let $value = self;
                $word
            }
        }
    )*};
}

scalars! {
    u8 => |v| u64::from(v);
    u16 => |v| u64::from(v);
    u32 => |v| u64::from(v);
    u64 => |v| v;
    i8 => |v| u64::from(v.cast_unsigned());
    i16 => |v| u64::from(v.cast_unsigned());
    i32 => |v| u64::from(v.cast_unsigned());
    i64 => |v| v.cast_unsigned();
    f32 => |v| u64::from(v.to_bits());
    f64 => |v| v.to_bits();
}

/// The arguments of one kernel launch.
///
/// Pointers are declared as such, with what the kernel does behind them: that is what lets a recording be patched to
/// other addresses, and a checked device name the argument that broke a rule. Up to eight arguments need no heap.
///
/// ```
/// use graphgrove_device::{Access, ArgKind, Args, DevicePtr};
///
/// let args = Args::new().read(DevicePtr::new(0x100)).write(DevicePtr::new(0x200)).scalar(64_u32);
/// assert_eq!(args.fields().len(), 3);
/// assert_eq!(args.fields()[0].kind, ArgKind::Pointer(Access::Read));
/// assert_eq!(args.pointer(1), Some(DevicePtr::new(0x200)));
/// assert_eq!(args.word(2), Some(64));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Args {
    words: SmallVec<[u64; 8]>,
    fields: SmallVec<[ArgField; 8]>,
}

impl Args {
    /// No arguments yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a pointer that the kernel only reads behind.
    #[must_use]
    pub fn read(self, at: DevicePtr) -> Self {
        self.pointer_arg(at, Access::Read)
    }

    /// Adds a pointer that the kernel only writes behind.
    #[must_use]
    pub fn write(self, at: DevicePtr) -> Self {
        self.pointer_arg(at, Access::Write)
    }

    /// Adds a pointer that the kernel reads and writes behind.
    #[must_use]
    pub fn read_write(self, at: DevicePtr) -> Self {
        self.pointer_arg(at, Access::ReadWrite)
    }

    /// Adds a number.
    #[must_use]
    pub fn scalar<T: Scalar>(mut self, value: T) -> Self {
        self.push(ArgKind::Scalar, T::BYTES, &[value.to_word()]);
        self
    }

    /// Adds a struct by value. The bytes are padded to a multiple of 8 where they lie, not in the size passed on.
    #[must_use]
    pub fn blob(mut self, bytes: &[u8]) -> Self {
        let words: SmallVec<[u64; 8]> = bytes
            .chunks(8)
            .map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_le_bytes(word)
            })
            .collect();
        self.push(ArgKind::Blob, bytes.len() as u32, &words);
        self
    }

    /// Where each argument lies and what it is.
    #[must_use]
    pub fn fields(&self) -> &[ArgField] {
        &self.fields
    }

    /// The argument bytes as words; a field of fewer than 8 bytes lies in the low bytes of its word.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The first word of an argument: the whole of a number or an address.
    #[must_use]
    pub fn word(&self, index: usize) -> Option<u64> {
        let field = self.fields.get(index).filter(|field| field.bytes > 0)?;
        self.words.get(field.offset as usize / 8).copied()
    }

    /// The address in an argument, or `None` if there is no such argument or it is not a pointer.
    #[must_use]
    pub fn pointer(&self, index: usize) -> Option<DevicePtr> {
        let field = self.fields.get(index)?;
        matches!(field.kind, ArgKind::Pointer(_))
            .then(|| self.words.get(field.offset as usize / 8).copied().map(DevicePtr::new))
            .flatten()
    }

    /// Writes another address into a pointer argument. Returns whether there is such an argument.
    pub fn set_pointer(&mut self, index: usize, at: DevicePtr) -> bool {
        let Some(field) = self.fields.get(index) else { return false };
        if !matches!(field.kind, ArgKind::Pointer(_)) {
            return false;
        }
        match self.words.get_mut(field.offset as usize / 8) {
            Some(word) => {
                *word = at.get();
                true
            }
            None => false,
        }
    }

    /// Whether `other` has the same number of arguments, of the same sizes and kinds.
    #[must_use]
    pub fn same_layout(&self, other: &Self) -> bool {
        self.fields == other.fields
    }

    fn pointer_arg(mut self, at: DevicePtr, access: Access) -> Self {
        self.push(ArgKind::Pointer(access), 8, &[at.get()]);
        self
    }

    fn push(&mut self, kind: ArgKind, bytes: u32, words: &[u64]) {
        let offset = self.words.len() as u32 * 8;
        self.words.extend_from_slice(words);
        self.fields.push(ArgField { offset, bytes, kind });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_lie_one_after_the_other_on_multiples_of_eight() {
        let args = Args::new().scalar(1_u8).blob(&[1; 12]).scalar(2.0_f32);
        let offsets: Vec<_> = args.fields().iter().map(|field| (field.offset, field.bytes)).collect();
        assert_eq!(offsets, [(0, 1), (8, 12), (24, 4)]);
        assert_eq!(args.word(2), Some(u64::from(2.0_f32.to_bits())));
        assert_eq!(args.words().len(), 4);
        assert_eq!(Args::new().blob(&[]).scalar(5_u32).word(0), None);
    }

    #[test]
    fn a_negative_number_keeps_to_its_own_bytes() {
        assert_eq!(Args::new().scalar(-1_i32).word(0), Some(0xffff_ffff));
        assert_eq!(Args::new().scalar(-1_i8).word(0), Some(0xff));
    }

    #[test]
    fn a_pointer_can_be_replaced_and_a_number_cannot() {
        let mut args = Args::new().read_write(DevicePtr::new(8)).scalar(5_u64);
        let before = args.clone();
        assert!(!args.set_pointer(1, DevicePtr::new(16)));
        assert!(!args.set_pointer(2, DevicePtr::new(16)));
        assert_eq!(args, before);
        assert!(args.set_pointer(0, DevicePtr::new(16)));
        assert_eq!(args.pointer(0), Some(DevicePtr::new(16)));
        assert_eq!(args.pointer(1), None);
    }

    #[test]
    fn layouts_compare_kinds_and_sizes_but_not_values() {
        let args = Args::new().read(DevicePtr::new(8)).scalar(5_u32);
        assert!(args.same_layout(&Args::new().read(DevicePtr::new(16)).scalar(6_u32)));
        assert!(!args.same_layout(&Args::new().write(DevicePtr::new(8)).scalar(5_u32)));
        assert!(!args.same_layout(&Args::new().read(DevicePtr::new(8)).scalar(5_u64)));
    }

    #[test]
    fn access_says_what_it_allows() {
        assert!(Access::Read.reads() && !Access::Read.writes());
        assert!(!Access::Write.reads() && Access::Write.writes());
        assert!(Access::ReadWrite.reads() && Access::ReadWrite.writes());
    }
}
