//! The form of a decision, and the draft in which one is made.

use super::code;
use crate::metadata::image::{ImageError, MIRROR_VERSION, MetadataImage};
use crate::metadata::record::MetadataRecord;
use crate::protocol::ErrorCode;

/// What is written, and what is answered once it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<A> {
    /// In their order, to be written all or none. Empty: nothing is to be done.
    pub records: Vec<MetadataRecord>,
    /// The answer.
    pub answer: A,
}

/// Why something is not done, in words of the protocol and of an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    /// The error's code.
    pub code: ErrorCode,
    /// The thing, the cause and the remedy. Never a secret.
    pub message: String,
}

impl Refusal {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Something by name, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named<T> {
    /// Name of the topic.
    pub name: String,
    /// What came of it. A refused one has left no record.
    pub result: Result<T, Refusal>,
}

/// One entry for each topic, in the order of the request; those that patterns brought follow.
pub type TopicResults = Vec<Named<()>>;

/// The first refusal, which is that of the whole request in the KIP's answers.
#[must_use]
pub fn first_refusal<T>(results: &[Named<T>]) -> Option<&Refusal> {
    results.iter().find_map(|it| it.result.as_ref().err())
}

/// A decision under way: what has been decided so far is seen by what is decided next.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    base: &'a MetadataImage,
    image: MetadataImage,
    records: Vec<MetadataRecord>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(base: &'a MetadataImage) -> Self {
        Self { base, image: base.clone(), records: Vec::new() }
    }

    /// The image as it will be.
    pub(super) fn image(&self) -> &MetadataImage {
        &self.image
    }

    /// Adds a record.
    ///
    /// # Errors
    /// A refusal for a record that does not follow: the checks before it should have told.
    pub(super) fn push(&mut self, record: impl Into<MetadataRecord>) -> Result<(), Refusal> {
        let record = record.into();
        self.image.apply(&record).map_err(|error| unfit(&error))?;
        self.records.push(record);
        Ok(())
    }

    /// Makes a decision about one of several things: all of its records, or none.
    pub(super) fn attempt<T>(
        &mut self,
        decide: impl FnOnce(&mut Self) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let len = self.records.len();
        decide(self).inspect_err(|_| self.roll_back(len))
    }

    /// Checks come before records, so that this has hardly ever anything to do.
    fn roll_back(&mut self, len: usize) {
        if self.records.len() == len {
            return;
        }
        self.records.truncate(len);
        self.image = self.base.clone();
        for record in &self.records {
            // It followed before.
            let _ = self.image.apply(record);
        }
    }

    pub(super) fn finish<A>(self, answer: A) -> Decision<A> {
        Decision { records: self.records, answer }
    }
}

fn unfit(error: &ImageError) -> Refusal {
    match error {
        ImageError::TextTooLong { .. } => Refusal::new(code::INVALID_REQUEST, error.to_string()),
        _ => Refusal::new(ErrorCode::UNKNOWN_SERVER_ERROR, error.to_string()),
    }
}

/// Mirrors have to be turned on before anything is asked about one.
pub(super) fn check_mirrors_on(image: &MetadataImage) -> Result<(), Refusal> {
    if image.feature(MIRROR_VERSION) >= 1 {
        return Ok(());
    }
    let message = "mirror.version of this cluster is 0: mirrors are off; \
        raise the feature mirror.version to 1";
    Err(Refusal::new(ErrorCode::UNSUPPORTED_VERSION, message))
}

/// Mirrors are on, and this one is there.
pub(super) fn check_mirror(image: &MetadataImage, mirror: &str) -> Result<(), Refusal> {
    check_mirrors_on(image)?;
    if image.has_mirror(mirror) {
        return Ok(());
    }
    let message = format!("mirror {} does not exist; create it first", shown(mirror));
    Err(Refusal::new(code::UNKNOWN_CLUSTER_MIRROR, message))
}

/// A name as a message shows it, of whatever length it came.
pub(super) fn shown(name: &str) -> &str {
    const BYTES_MAX: usize = 249;
    name.get(..name.floor_char_boundary(BYTES_MAX)).unwrap_or(name)
}
