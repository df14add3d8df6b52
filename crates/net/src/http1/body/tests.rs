//! Bodies: where they end, however their bytes arrive.

use super::*;

const LIMITS: HeadLimits = HeadLimits {
    bytes: 1024,
    fields: 10,
};

/// Feeds the input in pieces of `step` bytes; returns the content and what is left behind the body.
fn decode(framing: Framing, input: &[u8], step: usize) -> Result<(Vec<u8>, Vec<u8>), String> {
    let mut decoder = BodyDecoder::new(framing, LIMITS);
    let (mut content, mut waiting, mut fed) = (Vec::new(), Vec::new(), 0);
    loop {
        match decoder.next(&waiting).map_err(|error| error.0.to_owned())? {
            Piece::End => {
                waiting.extend_from_slice(&input[fed..]);
                return Ok((content, waiting));
            }
            Piece::Data(count) => content.extend(waiting.drain(..count)),
            Piece::Overhead(count) | Piece::Trailers(count) | Piece::Skip(count) => {
                drop(waiting.drain(..count))
            }
            Piece::NeedMore if fed == input.len() => return Err("truncated".to_owned()),
            Piece::NeedMore => {
                let end = input.len().min(fed + step);
                waiting.extend_from_slice(&input[fed..end]);
                fed = end;
            }
        }
    }
}

fn chunked(input: &str) -> Result<(String, String), String> {
    let whole = decode(Framing::Chunked, input.as_bytes(), usize::MAX / 2);
    for step in [1, 2, 3, 7] {
        let stepped = decode(Framing::Chunked, input.as_bytes(), step);
        assert_eq!(
            whole.is_ok(),
            stepped.is_ok(),
            "{input:?} in steps of {step}"
        );
        if let (Ok(whole), Ok(stepped)) = (&whole, &stepped) {
            assert_eq!(whole, stepped, "{input:?} in steps of {step}");
        }
    }
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    whole.map(|(content, rest)| (text(content), text(rest)))
}

#[test]
fn chunks_are_taken_with_extensions_and_trailers() {
    let cases = [
        ("0\r\n\r\nGET", "", "GET"),
        ("5\r\nhello\r\n0\r\n\r\n", "hello", ""),
        (
            "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nrest",
            "hello world",
            "rest",
        ),
        ("00005\r\nhello\r\n000\r\n\r\n", "hello", ""),
        (
            "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n",
            "01234567890123456789",
            "",
        ),
        ("5;a=b;c=\"d e\"\r\nhello\r\n0;x\r\n\r\n", "hello", ""),
        (
            "5\r\nhello\r\n0\r\nDigest: x\r\nX: y\r\n\r\nrest",
            "hello",
            "rest",
        ),
    ];
    for (input, content, rest) in cases {
        assert_eq!(
            chunked(input),
            Ok((content.to_owned(), rest.to_owned())),
            "{input:?}"
        );
    }
}

#[test]
fn chunks_that_could_be_read_in_two_ways_are_refused() {
    let cases = [
        "\r\n",
        "g\r\n",
        "+5\r\nhello\r\n",
        "-5\r\n",
        "0x5\r\nhello\r\n",
        " 5\r\nhello\r\n",
        "5 \r\nhello\r\n",
        "5\t\r\nhello\r\n",
        "5\nhello\r\n",
        "5\r\nhelloX\r\n",
        "5\r\nhello\n",
        "5\r\nhello\r5\r\n",
        "5\rhello",
        "1234567890abcdef\r\n",
        "5;a\nb\r\nhello\r\n",
        "5;a\rb\r\nhello\r\n",
        "5;a\0\r\nhello\r\n",
        "5,5\r\nhello\r\n",
        "0\r\nContent-Length: 5\r\n\r\n",
        "0\r\ntransfer-encoding: chunked\r\n\r\n",
        "0\r\nHost: b\r\n\r\n",
        "0\r\nConnection: close\r\n\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\r\nX: y\n\r\n",
        "0\r\n X: y\r\n\r\n",
        "0\r\nX: y\r\n z\r\n\r\n",
        "0\r\n\n",
    ];
    for input in cases {
        assert!(chunked(input).is_err(), "{input:?}");
    }
}

#[test]
fn extensions_and_trailers_are_bounded() {
    let extension = format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(2000));
    assert!(chunked(&extension).is_err());
    let endless = format!("5;{}", "a".repeat(2000));
    assert_eq!(chunked(&endless), Err("bad chunk extension".to_owned()));
    let trailers = format!("0\r\n{}\r\n", "A: b\r\n".repeat(20));
    assert!(chunked(&trailers).is_err());
    // Found by fuzzing: a section that arrived whole was taken whatever its size.
    let trailers = format!("0\r\nA: {}\r\n\r\n", "b".repeat(2000));
    assert_eq!(
        chunked(&trailers),
        Err("the trailer section is too large".to_owned())
    );
    let trailers = format!("0\r\nA: {}", "b".repeat(2000));
    assert_eq!(
        chunked(&trailers),
        Err("the trailer section is too large".to_owned())
    );
}

#[test]
fn other_framings_end_where_they_say() {
    assert_eq!(
        decode(Framing::Length(3), b"abcdef", 2),
        Ok((b"abc".to_vec(), b"def".to_vec()))
    );
    assert_eq!(
        decode(Framing::Length(0), b"x", 1),
        Ok((vec![], b"x".to_vec()))
    );
    assert_eq!(decode(Framing::None, b"x", 1), Ok((vec![], b"x".to_vec())));
    let mut decoder = BodyDecoder::new(Framing::UntilClose, LIMITS);
    assert_eq!(decoder.next(b"abc"), Ok(Piece::Data(3)));
    assert!(decoder.may_end_with_connection() && !decoder.is_done());
    let mut decoder = BodyDecoder::new(Framing::Length(5), LIMITS);
    assert_eq!(decoder.next(b"abc"), Ok(Piece::Data(3)));
    assert!(!decoder.may_end_with_connection());
}

#[test]
fn a_skipped_extension_leaves_the_framing_whole() {
    let input = b"5;x=1\r\nhello\r\n0\r\n\r\n";
    let mut decoder = BodyDecoder::new(Framing::Chunked, LIMITS);
    let (mut rest, mut relayed) = (&input[..], Vec::new());
    loop {
        match decoder.next(rest).unwrap() {
            Piece::End => break,
            Piece::NeedMore => panic!("it is all there"),
            Piece::Skip(count) => rest = &rest[count..],
            Piece::Data(count) | Piece::Overhead(count) | Piece::Trailers(count) => {
                relayed.extend_from_slice(&rest[..count]);
                rest = &rest[count..];
            }
        }
    }
    assert_eq!(relayed, b"5\r\nhello\r\n0\r\n\r\n");
}
