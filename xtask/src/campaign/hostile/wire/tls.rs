//! A ClientHello (RFC 8446, section 4.1.2) that a server of TLS 1.2 or 1.3 answers with its
//! certificate: the answer costs it a signature.

use fastrand::Rng;

/// Bytes with their length before them, in one byte or in two.
fn vector(length_bytes: usize, inside: &[u8]) -> Vec<u8> {
    let length = (inside.len() as u64).to_be_bytes();
    let (_, length) = length.split_at(8 - length_bytes);
    [length, inside].concat()
}

fn extension(kind: u16, inside: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector(2, inside)].concat()
}

fn numbers(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|it| it.to_be_bytes()).collect()
}

pub fn random_bytes(random: &mut Rng, count: usize) -> Vec<u8> {
    (0..count).map(|_| random.u8(..)).collect()
}

/// A record with a ClientHello. Any 32 bytes are a public key of X25519.
pub fn client_hello(random: &mut Rng) -> Vec<u8> {
    let [nonce, session, key] = [(); 3].map(|()| random_bytes(random, 32));
    let algorithms = [
        0x0403, 0x0503, 0x0804, 0x0805, 0x0806, 0x0807, 0x0401, 0x0501,
    ];
    let ciphers = [0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030];
    let share = [vec![0, 0x1d], vector(2, &key)].concat();
    let extensions = [
        extension(10, &vector(2, &numbers(&[0x1d, 0x17]))),
        extension(11, &vector(1, &[0])),
        extension(13, &vector(2, &numbers(&algorithms))),
        extension(43, &vector(1, &numbers(&[0x0304, 0x0303]))),
        extension(45, &vector(1, &[1])),
        extension(51, &vector(2, &share)),
    ];
    let body = [
        vec![3, 3],
        nonce,
        vector(1, &session),
        vector(2, &numbers(&ciphers)),
        vector(1, &[0]),
        vector(2, &extensions.concat()),
    ];
    let message = [vec![1], vector(3, &body.concat())].concat();
    [vec![22, 3, 1], vector(2, &message)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_record_and_message_match() {
        let hello = client_hello(&mut Rng::with_seed(1));
        let record = usize::from(u16::from_be_bytes([hello[3], hello[4]]));
        assert_eq!(record, hello.len() - 5);
        let message = usize::from(u16::from_be_bytes([hello[7], hello[8]]));
        assert_eq!((hello[5], message), (1, record - 4));
        assert_eq!(vector(2, b"ab"), b"\0\x02ab");
    }
}
