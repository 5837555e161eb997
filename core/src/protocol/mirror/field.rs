//! Fields of flexible messages, and structs made of them.

use uuid::Uuid;

use crate::protocol::wire::{DecodeError, Reader};
use crate::records::varint::put_unsigned;
use crate::types::{BrokerId, TopicId};

/// Something that stands in a message: a primitive, an array, a struct.
pub trait Field: Sized {
    /// Reads it from the front; `name` is for errors.
    ///
    /// # Errors
    /// [`DecodeError`], naming the field.
    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError>;

    /// Appends its bytes.
    fn write(&self, out: &mut Vec<u8>);
}

impl Field for bool {
    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        Ok(reader.i8(name)? != 0)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

macro_rules! integer {
    ($($kind:ident)*) => {$(
        impl Field for $kind {
            fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
                reader.$kind(name)
            }

            fn write(&self, out: &mut Vec<u8>) {
                out.extend(self.to_be_bytes());
            }
        }
    )*};
}

integer! { i8 i16 i32 i64 }

impl Field for u16 {
    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        reader.i16(name).map(i16::cast_unsigned)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.to_be_bytes());
    }
}

impl Field for Uuid {
    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        reader.u128(name).map(Self::from_u128)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.as_bytes());
    }
}

impl Field for TopicId {
    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        Uuid::read(reader, name).map(Self)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

impl Field for BrokerId {
    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        reader.i32(name).map(Self)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

impl Field for String {
    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        Option::read(reader, name)?.ok_or(DecodeError::Null { field: name })
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_len(out, self.len());
        out.extend(self.as_bytes());
    }
}

impl Field for Option<String> {
    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        Ok(reader.compact_str(name)?.map(str::to_owned))
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Some(text) => text.write(out),
            None => out.push(0),
        }
    }
}

impl<T: Field> Field for Vec<T> {
    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        read_nullable_array(reader, name)?.ok_or(DecodeError::Null { field: name })
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_len(out, self.len());
        for item in self {
            item.write(out);
        }
    }
}

/// An array, `None` for null.
pub(crate) fn read_nullable_array<T: Field>(
    reader: &mut Reader<'_>,
    name: &'static str,
) -> Result<Option<Vec<T>>, DecodeError> {
    let Some(count) = reader.compact_len(name)? else { return Ok(None) };
    // Each takes a byte at least: no count makes us reserve more than the peer has sent.
    if u64::from(count) > reader.left() {
        let need = u64::from(count);
        return Err(DecodeError::PastFrame { field: name, need, left: reader.left() });
    }
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(T::read(reader, name)?);
    }
    Ok(Some(items))
}

/// A compact length: one more than it is.
fn put_len(out: &mut Vec<u8>, len: usize) {
    put_unsigned(out, len64(len).saturating_add(1));
}

fn len64(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// Writes the tagged fields at the end of a struct.
pub(crate) fn put_tagged(out: &mut Vec<u8>, fields: impl IntoIterator<Item = (u32, Vec<u8>)>) {
    let fields: Vec<_> = fields.into_iter().collect();
    put_unsigned(out, len64(fields.len()));
    for (tag, bytes) in fields {
        put_unsigned(out, tag.into());
        put_unsigned(out, len64(bytes.len()));
        out.extend(bytes);
    }
}

/// Reads the tagged fields at the end of a struct. `each` takes those that it knows, all of
/// their bytes, and says whether it does; the others are passed over.
///
/// # Errors
/// [`DecodeError`] for tags that do not rise, and sizes that are not the field's.
pub(crate) fn read_tagged(
    reader: &mut Reader<'_>,
    mut each: impl FnMut(u32, &mut Reader<'_>) -> Result<bool, DecodeError>,
) -> Result<(), DecodeError> {
    const FIELDS: &str = "tagged fields";
    let mut last = None;
    for _ in 0..reader.varint(FIELDS)? {
        let tag = reader.varint(FIELDS)?;
        if last.is_some_and(|last| tag <= last) {
            return Err(DecodeError::Repeated { field: FIELDS });
        }
        last = Some(tag);
        let size = u64::from(reader.varint(FIELDS)?);
        let mut field = Reader::new(reader.take(size, FIELDS)?);
        if each(tag, &mut field)? && field.left() > 0 {
            let used = size - field.left();
            return Err(DecodeError::TaggedSize { field: FIELDS, size, used });
        }
    }
    Ok(())
}

/// Structs of a message: fields in their order, then those with a tag. A tagged field that has
/// its default is not written.
macro_rules! structs {
    ($(
        $(#[$doc:meta])*
        struct $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $kind:ty = $wire:literal $(or $default:expr)?,)*
            $(@ $tag:literal $(#[$tagged_doc:meta])*
                $tagged:ident: $tagged_kind:ty = $tagged_wire:literal or $tagged_default:expr,)*
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind,)*
            $($(#[$tagged_doc])* pub $tagged: $tagged_kind,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($field: structs!(@default $($default)?),)*
                    $($tagged: $tagged_default,)*
                }
            }
        }

        impl $crate::protocol::mirror::field::Field for $name {
            fn read(
                reader: &mut $crate::protocol::wire::Reader<'_>,
                _: &'static str,
            ) -> Result<Self, $crate::protocol::wire::DecodeError> {
                let mut it = Self {
                    $($field: $crate::protocol::mirror::field::Field::read(reader, $wire)?,)*
                    $($tagged: $tagged_default,)*
                };
                let fields = &mut it;
                $crate::protocol::mirror::field::read_tagged(reader, |tag, field| {
                    let _ = (&field, &fields);
                    match tag {
                        $($tag => {
                            fields.$tagged =
                                $crate::protocol::mirror::field::Field::read(field, $tagged_wire)?;
                            Ok(true)
                        })*
                        _ => Ok(false),
                    }
                })?;
                Ok(it)
            }

            fn write(&self, out: &mut Vec<u8>) {
                $($crate::protocol::mirror::field::Field::write(&self.$field, out);)*
                let tagged: Vec<Option<(u32, Vec<u8>)>> = vec![$({
                    let default: $tagged_kind = $tagged_default;
                    (self.$tagged != default)
                        .then(|| ($tag, $crate::protocol::mirror::encode(&self.$tagged)))
                }),*];
                $crate::protocol::mirror::field::put_tagged(out, tagged.into_iter().flatten());
            }
        }

        impl $crate::protocol::mirror::json::Json for $name {
            /// A tagged field that has its default is left out, as Kafka does.
            fn json(&self, out: &mut String) {
                let object = $crate::protocol::mirror::json::JsonObject::new(out)
                    $(.field($wire, &self.$field))*;
                $(
                    let default: $tagged_kind = $tagged_default;
                    let object = if self.$tagged == default {
                        object
                    } else {
                        object.field($tagged_wire, &self.$tagged)
                    };
                )*
                object.end();
            }
        }
    )*

        /// Struct, field and tag of everything that is tagged.
        #[cfg(test)]
        pub(super) const TAGGED: &[(&str, &str, u32)] =
            &[$($((stringify!($name), $tagged_wire, $tag),)*)*];
    };
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
}

pub(crate) use structs;
