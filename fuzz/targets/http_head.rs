//! Heads of requests and replies: never a panic, and what is taken has one meaning.

#![no_main]

use libfuzzer_sys::fuzz_target;
use message::{Field, Method};
use net::http1::{Framing, HeadLimits, RequestHead, ResponseHead};

const LIMITS: HeadLimits = HeadLimits {
    bytes: 4096,
    fields: 32,
};

fuzz_target!(|bytes: &[u8]| {
    let mut head = RequestHead::default();
    if let Ok(true) = head.parse(bytes, LIMITS) {
        check_request(&head, bytes);
    }
    let mut reply = ResponseHead::default();
    if let Ok(true) = reply.parse(bytes, &Method::Get, LIMITS) {
        assert!(reply.length <= bytes.len() && reply.status >= 100);
        for (_, name, value) in reply.headers(bytes).iter() {
            check_field(name, value);
        }
        let _ = reply.keep_alive_time(bytes);
    }
});

fn check_request(head: &RequestHead, bytes: &[u8]) {
    assert!(head.length <= bytes.len());
    assert!(bytes[..head.length].ends_with(b"\r\n\r\n"));
    let path = head.path(bytes);
    assert!(path.starts_with(b"/") || path == b"*");
    assert!(
        path.iter()
            .chain(head.query(bytes).unwrap_or_default())
            .all(u8::is_ascii_graphic)
    );
    let (mut lengths, mut codings, mut hosts) = (0, 0, 0);
    for (field, name, value) in head.headers(bytes).iter() {
        check_field(name, value);
        lengths += usize::from(field == Field::ContentLength);
        codings += usize::from(field == Field::TransferEncoding);
        hosts += usize::from(field == Field::Host);
    }
    assert!(hosts <= 1 && lengths + codings <= 1);
    match head.framing {
        Framing::None => assert_eq!(lengths + codings, 0),
        Framing::Length(_) => assert_eq!(lengths, 1),
        Framing::Chunked => assert_eq!(codings, 1),
        Framing::UntilClose => panic!("a request cannot end with its connection"),
    }
    // The same head with something behind it is the same head.
    let mut longer = bytes.to_vec();
    longer.extend_from_slice(b"\r\nGET / HTTP/1.1\r\n");
    let mut again = RequestHead::default();
    assert_eq!(again.parse(&longer, LIMITS), Ok(true));
    assert_eq!((again.length, again.framing), (head.length, head.framing));
}

fn check_field(name: &[u8], value: &[u8]) {
    assert!(!name.is_empty() && name.iter().all(u8::is_ascii_graphic));
    assert!(!name.contains(&b':'));
    assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
    assert_eq!(value, value.trim_ascii());
}
