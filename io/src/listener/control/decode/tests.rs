use bytes::Bytes;
use proptest::prelude::*;

use super::super::encode::encode;
use super::*;

fn request(api_key: i16, version: i16, body: Vec<u8>) -> Request {
    Request { api_key, version, correlation_id: 5, client_id: None, body: Bytes::from(body) }
}

/// Zeros are empty arrays and short texts: with many of them some bodies are requests.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![5 => Just(0_u8), 3 => 1..5_u8, 1 => any::<u8>()];
    prop::collection::vec(byte, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever comes, it is refused, or it can be answered in its version.
    #[test]
    fn arbitrary_bodies_are_no_danger(
        (api_key, version) in prop::sample::select(apis::served().collect::<Vec<_>>())
            .prop_flat_map(|(key, min, max)| (Just(key), min..=max)),
        body in body(),
    ) {
        let request = request(api_key, version, body);
        let response = match decode(&request) {
            Ok(Decoded::Ask(asked)) => {
                asked.refused(&Refusal::new(ErrorCode::REQUEST_TIMED_OUT, "late"))
            }
            Ok(Decoded::Answer(response)) => response,
            Err(_) => return Ok(()),
        };
        match encode(&request, response) {
            Ok(frame) => {
                let length = i32::from_be_bytes(*frame.first_chunk().unwrap());
                prop_assert_eq!(usize::try_from(length).unwrap() + 4, frame.len());
                prop_assert_eq!(&frame[4..8], 5_i32.to_be_bytes());
            }
            Err(ConnectionError::NoErrorField { .. }) => {
                prop_assert!(request.api() == Some(ApiKey::Metadata) && version < 13);
            }
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }
}

/// The property above means little if nothing passes: an empty request of each API does.
#[test]
fn zeros_are_requests_of_most_apis() {
    for (api_key, version) in [(3, 0), (19, 2), (20, 1), (32, 1), (37, 0), (44, 0), (60, 0)] {
        let zeros = |bytes| request(api_key, version, vec![0; bytes]);
        assert!((0..20).any(|bytes| decode(&zeros(bytes)).is_ok()), "{api_key} v{version}");
    }
}
