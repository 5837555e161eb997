//! The streaming Fetch decoder, fetch sessions and error codes. Everything else on the wire is kafka-protocol's.
