//! The field `Sec-WebSocket-Extensions` (RFC 6455, section 9.1) and what stands in it about
//! `permessage-deflate` (RFC 7692, section 7.1).

use super::deflate::{BITS_MAX, BITS_MIN, Deflate};

const NAME: &str = "permessage-deflate";
const SERVER_FORGETS: &str = "server_no_context_takeover";
const CLIENT_FORGETS: &str = "client_no_context_takeover";
const SERVER_BITS: &str = "server_max_window_bits";
const CLIENT_BITS: &str = "client_max_window_bits";

/// What our client asks for: no side refers to its messages before, so that nothing is kept.
pub(super) const OFFER: &str = "permessage-deflate; client_no_context_takeover; \
                                server_no_context_takeover; client_max_window_bits";

/// One extension and its parameters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Extension {
    name: String,
    parameters: Vec<(String, Option<String>)>,
}

/// Reads the lines of the field; `None` when they are malformed.
pub(super) fn read<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Vec<Extension>> {
    let mut extensions = Vec::new();
    for line in lines {
        let mut parser = Parser(line);
        loop {
            parser.skip_space();
            if parser.take(b',') {
                continue;
            }
            if parser.0.is_empty() {
                break;
            }
            extensions.push(parser.extension()?);
            parser.skip_space();
            if !parser.0.is_empty() && !parser.take(b',') {
                return None;
            }
        }
    }
    Some(extensions)
}

struct Parser<'a>(&'a [u8]);

impl Parser<'_> {
    fn skip_space(&mut self) {
        self.0 = self.0.trim_ascii_start();
    }

    fn take(&mut self, byte: u8) -> bool {
        match self.0.split_first() {
            Some((first, rest)) if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    fn extension(&mut self) -> Option<Extension> {
        let mut extension = Extension {
            name: self.token()?,
            parameters: Vec::new(),
        };
        loop {
            self.skip_space();
            if !self.take(b';') {
                return Some(extension);
            }
            self.skip_space();
            let name = self.token()?;
            self.skip_space();
            let value = match self.take(b'=') {
                true => Some(self.value()?),
                false => None,
            };
            extension.parameters.push((name, value));
        }
    }

    fn token(&mut self) -> Option<String> {
        let is_token =
            |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        let length = self.0.iter().take_while(|byte| is_token(byte)).count();
        let (token, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        let token = String::from_utf8_lossy(token).into_owned();
        (!token.is_empty()).then_some(token)
    }

    /// A token, or one in quotes.
    fn value(&mut self) -> Option<String> {
        self.skip_space();
        if !self.take(b'"') {
            return self.token();
        }
        let token = self.token()?;
        self.take(b'"').then_some(token)
    }
}

/// The parameters of `permessage-deflate`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parameters {
    server_forgets: bool,
    client_forgets: bool,
    server_bits: Option<u8>,
    /// Present without a value: the client can do with any.
    client_bits: Option<Option<u8>>,
}

impl Parameters {
    /// `None` when it is another extension, or the parameters are not valid.
    fn of(extension: &Extension) -> Option<Self> {
        if extension.name != NAME {
            return None;
        }
        let mut parameters = Self::default();
        let mut seen = Vec::new();
        for (name, value) in &extension.parameters {
            if seen.contains(&name) {
                return None;
            }
            seen.push(name);
            match (name.as_str(), value) {
                (SERVER_FORGETS, None) => parameters.server_forgets = true,
                (CLIENT_FORGETS, None) => parameters.client_forgets = true,
                (SERVER_BITS, Some(bits)) => parameters.server_bits = Some(read_bits(bits)?),
                (CLIENT_BITS, None) => parameters.client_bits = Some(None),
                (CLIENT_BITS, Some(bits)) => {
                    parameters.client_bits = Some(Some(read_bits(bits)?));
                }
                _ => return None,
            }
        }
        Some(parameters)
    }
}

/// 8 to 15, without zeros in front (RFC 7692, section 7.1.2.1).
fn read_bits(text: &str) -> Option<u8> {
    let bits = text
        .parse()
        .ok()
        .filter(|bits| (8..=BITS_MAX).contains(bits));
    bits.filter(|_| !text.starts_with(['0', '+']))
}

/// Accepts the first offer that the server can serve, and says how the reply tells it. No side may
/// refer to its messages before: so a message is compressed once for all who get it, and a
/// connection keeps nothing between messages.
pub(super) fn accept(offers: &[Extension]) -> Option<(Deflate, String)> {
    let mut offers = offers.iter().filter_map(Parameters::of);
    let offer = offers.find(|it| it.server_bits.is_none_or(|bits| bits >= BITS_MIN))?;
    let deflate = Deflate {
        window_bits: offer.server_bits.unwrap_or(BITS_MAX),
        peer_keeps_context: false,
    };
    let mut answer = format!("{NAME}; {SERVER_FORGETS}; {CLIENT_FORGETS}");
    if let Some(bits) = offer.server_bits {
        answer.push_str(&format!("; {SERVER_BITS}={bits}"));
    }
    Some((deflate, answer))
}

/// What a server has made of [`OFFER`]: `Ok(None)` when it does not compress.
pub(super) fn accepted(answer: &[Extension]) -> Result<Option<Deflate>, &'static str> {
    match answer {
        [] => Ok(None),
        [only] => {
            let parameters =
                Parameters::of(only).ok_or("the server answers with what is no offer")?;
            let window_bits = match parameters.client_bits {
                None => BITS_MAX,
                Some(Some(bits)) => bits,
                Some(None) => return Err("the server does not say how large the window is"),
            };
            Ok(Some(Deflate {
                window_bits,
                peer_keeps_context: !parameters.server_forgets,
            }))
        }
        _ => Err("the server wants extensions that were not offered"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept_text(text: &str) -> Option<String> {
        let offers = read(std::iter::once(text.as_bytes())).expect(text);
        accept(&offers).map(|(_, answer)| answer)
    }

    const PLAIN: &str =
        "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

    #[test]
    fn offers_that_can_be_served_are_accepted() {
        for offer in [
            "permessage-deflate",
            "permessage-deflate; client_max_window_bits",
            "permessage-deflate;client_max_window_bits=10 ; server_no_context_takeover",
            "x-webkit-deflate-frame, permessage-deflate",
            "permessage-deflate; server_max_window_bits=8, permessage-deflate",
            "permessage-deflate; unknown=1, , permessage-deflate",
        ] {
            assert_eq!(accept_text(offer).as_deref(), Some(PLAIN), "{offer}");
        }
        let small = accept_text("permessage-deflate; server_max_window_bits=\"10\"");
        assert_eq!(
            small.unwrap(),
            format!("{PLAIN}; server_max_window_bits=10")
        );
    }

    #[test]
    fn offers_that_are_wrong_are_declined() {
        for offer in [
            "",
            "permessage-bzip2",
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; server_max_window_bits=8",
            "permessage-deflate; server_max_window_bits=7",
            "permessage-deflate; server_max_window_bits=16",
            "permessage-deflate; server_max_window_bits=09",
            "permessage-deflate; server_max_window_bits=+9",
            "permessage-deflate; client_max_window_bits=x",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; client_no_context_takeover; client_no_context_takeover",
            "permessage-deflate; other",
        ] {
            assert_eq!(accept_text(offer), None, "{offer}");
        }
    }

    #[test]
    fn malformed_lines_are_told() {
        for line in [
            "=",
            "a b",
            "a; ",
            "a; b=",
            "a; b=\"c",
            "a; b=\"c d\"",
            "a;;b",
            "ä",
        ] {
            assert_eq!(read(std::iter::once(line.as_bytes())), None, "{line}");
        }
    }

    #[test]
    fn answers_are_checked_against_what_was_offered() {
        let answer = |text: &str| accepted(&read(std::iter::once(text.as_bytes())).unwrap());
        assert_eq!(answer(""), Ok(None));
        let kept = Deflate {
            window_bits: 15,
            peer_keeps_context: true,
        };
        assert_eq!(answer("permessage-deflate"), Ok(Some(kept)));
        let small = Deflate {
            window_bits: 9,
            peer_keeps_context: false,
        };
        let text = "permessage-deflate; server_no_context_takeover; client_max_window_bits=9";
        assert_eq!(answer(text), Ok(Some(small)));
        for wrong in [
            "other",
            "permessage-deflate; client_max_window_bits",
            "permessage-deflate, permessage-deflate",
            "permessage-deflate; server_max_window_bits=99",
        ] {
            assert!(answer(wrong).is_err(), "{wrong}");
        }
    }
}
