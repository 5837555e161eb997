//! Why a command ends without its result, on one line.

use std::error::Error;
use std::fmt;
use std::io;

/// What was tried, why it failed, and what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
    remedy: Option<String>,
}

impl Failure {
    /// `what` is a whole sentence with reason and remedy.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None, remedy: None }
    }

    /// `what` failed by `source`.
    pub(crate) fn from_error(
        what: impl Into<String>,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self { what: what.into(), source: Some(Box::new(source)), remedy: None }
    }

    /// What to do about it.
    pub(crate) fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }

    /// Whether the reader of standard output has gone, which is its right.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        let source = self.source.as_ref().and_then(|source| source.downcast_ref::<io::Error>());
        source.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.what.clone();
        let mut cause = self.source.as_ref().map(|source| -> &dyn Error { source.as_ref() });
        while let Some(error) = cause {
            // A layer that repeats its cause is not printed twice.
            let said = error.to_string();
            if !text.contains(&said) {
                text.push_str(": ");
                text.push_str(&said);
            }
            cause = error.source();
        }
        if let Some(remedy) = &self.remedy {
            text.push_str("; ");
            text.push_str(remedy);
        }
        let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        f.write_str(&line)
    }
}

impl Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_one_line() {
        let source = io::Error::new(io::ErrorKind::NotFound, "no such\nfile");
        let failure = Failure::from_error("a.log", source).remedy("name another");
        assert_eq!(failure.to_string(), "a.log: no such file; name another");
    }

    #[test]
    fn a_closed_pipe_is_told_apart() {
        let closed =
            Failure::from_error("standard output", io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(closed.is_closed_pipe());
        assert!(!Failure::new("other").is_closed_pipe());
    }
}
