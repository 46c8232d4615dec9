//! The types that simulated memory can hold.

use half::{bf16, f16};

mod sealed {
    pub trait Sealed {}
}

/// A number that device memory can be viewed as: any bit pattern is a value, and alignment is at most 8 bytes.
pub trait Element: Copy + Default + Send + Sync + sealed::Sealed + 'static {
    /// The value in the low bytes of an argument word.
    fn from_word(word: u64) -> Self;
}

macro_rules! elements {
    ($($type:ty => |$word:ident| $value:expr;)*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            fn from_word($word: u64) -> Self {
                $value
            }
        }
    )*};
}

elements! {
    u8 => |w| w as u8;
    u16 => |w| w as u16;
    u32 => |w| w as u32;
    u64 => |w| w;
    i8 => |w| w as i8;
    i16 => |w| w as i16;
    i32 => |w| w as i32;
    i64 => |w| w as i64;
    f32 => |w| f32::from_bits(w as u32);
    f64 => |w| f64::from_bits(w);
    f16 => |w| f16::from_bits(w as u16);
    bf16 => |w| bf16::from_bits(w as u16);
}

#[cfg(test)]
mod tests {
    use graphgrove_device::Scalar;

    use super::*;

    #[test]
    fn a_number_survives_the_way_through_an_argument_word() {
        assert_eq!(i32::from_word((-5_i32).to_word()), -5);
        assert_eq!(f32::from_word(1.5_f32.to_word()), 1.5);
        assert_eq!(i64::from_word(i64::MIN.to_word()), i64::MIN);
        assert_eq!(u8::from_word(200_u8.to_word()), 200);
    }
}
