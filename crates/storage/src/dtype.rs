//! Element types.

use std::fmt;

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident, $bytes:literal, $text:literal;)*) => {
        /// The type of a tensor's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum DType {
            $($(#[$doc])* $variant,)*
        }

        impl DType {
            /// The size of one element in bytes.
            #[must_use]
            pub const fn bytes(self) -> u64 {
                match self {
                    $(Self::$variant => $bytes,)*
                }
            }

            /// The name as frameworks write it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

dtypes! {
    /// A truth value in one byte.
    Bool, 1, "bool";
    /// An unsigned 8-bit integer.
    U8, 1, "u8";
    /// A signed 8-bit integer.
    I8, 1, "i8";
    /// An unsigned 16-bit integer.
    U16, 2, "u16";
    /// A signed 16-bit integer.
    I16, 2, "i16";
    /// An unsigned 32-bit integer.
    U32, 4, "u32";
    /// A signed 32-bit integer.
    I32, 4, "i32";
    /// An unsigned 64-bit integer.
    U64, 8, "u64";
    /// A signed 64-bit integer.
    I64, 8, "i64";
    /// [`half::f16`]
    F16, 2, "f16";
    /// [`half::bf16`]
    Bf16, 2, "bf16";
    /// A 32-bit float.
    F32, 4, "f32";
    /// A 64-bit float.
    F64, 8, "f64";
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that can be a tensor's element.
pub trait Element: Copy + Send + Sync + 'static {
    /// The element type that a tensor of these has.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($type:ty => $variant:ident,)*) => {
        $(impl Element for $type {
            const DTYPE: DType = DType::$variant;
        })*

        #[cfg(test)]
        #[test]
        fn an_element_type_is_as_large_as_its_elements() {
            $(assert_eq!(<$type>::DTYPE.bytes(), size_of::<$type>() as u64, "{}", <$type>::DTYPE);)*
        }
    };
}

elements! {
    bool => Bool,
    u8 => U8,
    i8 => I8,
    u16 => U16,
    i16 => I16,
    u32 => U32,
    i32 => I32,
    u64 => U64,
    i64 => I64,
    half::f16 => F16,
    half::bf16 => Bf16,
    f32 => F32,
    f64 => F64,
}
