//! Messages as JSON, as Kafka's tools print them.

use std::fmt::Write;

/// A message, or a part of one, that can be shown.
pub trait Json {
    /// Appends it: compact, names in camel case, IDs in Kafka's spelling.
    fn json(&self, out: &mut String);
}

impl Json for bool {
    fn json(&self, out: &mut String) {
        out.push_str(if *self { "true" } else { "false" });
    }
}

macro_rules! numbers {
    ($($kind:ident)*) => {$(
        impl Json for $kind {
            fn json(&self, out: &mut String) {
                out.push_str(&self.to_string());
            }
        }
    )*};
}

numbers! { i8 i16 i32 i64 u16 }

impl Json for uuid::Uuid {
    fn json(&self, out: &mut String) {
        crate::types::TopicId(*self).json(out);
    }
}

impl Json for crate::types::TopicId {
    fn json(&self, out: &mut String) {
        self.to_string().as_str().json(out);
    }
}

impl Json for crate::types::BrokerId {
    fn json(&self, out: &mut String) {
        self.0.json(out);
    }
}

impl Json for str {
    /// Quoted; with the escapes that Kafka's library writes.
    fn json(&self, out: &mut String) {
        out.push('"');
        for letter in self.chars() {
            match letter {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                other if other < ' ' => {
                    // A string takes everything.
                    let _ = write!(out, "\\u{:04X}", u32::from(other));
                }
                other => out.push(other),
            }
        }
        out.push('"');
    }
}

impl Json for String {
    fn json(&self, out: &mut String) {
        self.as_str().json(out);
    }
}

impl<T: Json> Json for Option<T> {
    fn json(&self, out: &mut String) {
        match self {
            Some(some) => some.json(out),
            None => out.push_str("null"),
        }
    }
}

impl<T: Json> Json for Vec<T> {
    fn json(&self, out: &mut String) {
        out.push('[');
        for (index, item) in self.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            item.json(out);
        }
        out.push(']');
    }
}

/// Appends the fields of an object, one after the other.
#[derive(Debug)]
pub struct JsonObject<'a> {
    out: &'a mut String,
    is_empty: bool,
}

impl<'a> JsonObject<'a> {
    /// Opens an object.
    pub fn new(out: &'a mut String) -> Self {
        out.push('{');
        Self { out, is_empty: true }
    }

    /// A field by its name in the schema, which begins with a capital.
    #[must_use]
    pub fn field<T: Json + ?Sized>(mut self, name: &str, value: &T) -> Self {
        value.json(self.name(name));
        self
    }

    /// The name, up to the colon; the value follows.
    pub fn name(&mut self, name: &str) -> &mut String {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(',');
        }
        let mut letters = name.chars();
        let camel: String = letters
            .next()
            .map(|first| first.to_ascii_lowercase())
            .into_iter()
            .chain(letters)
            .collect();
        camel.as_str().json(self.out);
        self.out.push(':');
        self.out
    }

    /// Closes it.
    pub fn end(self) {
        self.out.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_as_kafkas_library_does() {
        let mut out = String::new();
        "a\"b\\\n\u{1f}\u{e9}/".json(&mut out);
        assert_eq!(out, "\"a\\\"b\\\\\\n\\u001F\u{e9}/\"");
    }

    #[test]
    fn objects_have_camel_case_names() {
        let mut out = String::new();
        JsonObject::new(&mut out)
            .field("IsMigratingZkBroker", &false)
            .field("Replicas", &vec![1, 2])
            .field("Rack", &None::<String>)
            .field("LogDirs", &vec![uuid::Uuid::nil()])
            .end();
        assert_eq!(
            out,
            "{\"isMigratingZkBroker\":false,\"replicas\":[1,2],\"rack\":null,\"logDirs\":\
             [\"AAAAAAAAAAAAAAAAAAAAAA\"]}"
        );
    }
}
