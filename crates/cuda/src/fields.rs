//! Fields of driver structs that may not be made or read as a whole.
//!
//! Some of them hold enums for which zero is no value, or for which a newer driver has values that the bindings lack.

use std::mem::MaybeUninit;

/// A struct of zeros, of which the needed fields are written.
pub(crate) fn zeroed<T>() -> MaybeUninit<T> {
    MaybeUninit::zeroed()
}

/// The place of a field, given its offset in bytes.
pub(crate) fn place<T, F>(value: &mut MaybeUninit<T>, offset: usize) -> *mut F {
    value.as_mut_ptr().wrapping_byte_add(offset).cast()
}

/// Writes one field of a `MaybeUninit`.
macro_rules! write_field {
    ($value:ident, $type:ty, $field:ident = $new:expr) => {{
        let place = $crate::fields::place(&mut $value, std::mem::offset_of!($type, $field));
        // SAFETY: the place is inside of the value, as large and aligned as the field.
        unsafe { std::ptr::write(place, $new) };
    }};
}

/// Reads one field of a `MaybeUninit` that was made from zeros, as a type for which every bit pattern is a value.
macro_rules! read_field {
    ($value:ident, $type:ty, $field:ident as $plain:ty) => {{
        let place = $crate::fields::place::<_, $plain>(&mut $value, std::mem::offset_of!($type, $field));
        // SAFETY: the place is inside of the value and as large and aligned as the plain type, which has no invalid values.
        unsafe { place.read() }
    }};
}

pub(crate) use {read_field, write_field};

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Pair {
        first: u8,
        second: u32,
    }

    #[test]
    fn a_field_is_written_and_read_at_its_own_place() {
        let mut pair = zeroed::<Pair>();
        write_field!(pair, Pair, second = 7_u32);
        assert_eq!(read_field!(pair, Pair, first as u8), 0);
        assert_eq!(read_field!(pair, Pair, second as u32), 7);
    }
}
