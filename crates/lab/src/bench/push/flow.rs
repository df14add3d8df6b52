//! The files of Intertie for a case, and what the other side has to know of them: paths and secrets
//! of endpoints.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::case::{Case, Kind};
use crate::bench::tokens::{AUDIENCE, ISSUER};

/// Keys of Standard Webhooks: 18 bytes in Base64 that all share, and six of the endpoint's own,
/// which are the last segment of its path.
const WEBHOOK_SECRET: &str = "whsec_cHVzaC1sYWIvcHVzaC1sYWIv";
/// The same for subscribers of a hub, any text.
const HUB_SECRET: &str = "push-lab-secret-";
/// What secrets of users are encrypted with: 32 bytes.
const ENCRYPTION_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// The number of the endpoint that is away: beyond those of the others, which a restart adds.
const AWAY: usize = 99_999_999;

/// Addresses, and what else a file names.
pub(super) struct Place<'a> {
    pub case: &'a Case,
    pub listen: SocketAddr,
    pub sink: SocketAddr,
    /// A sink whose endpoints fail, where there is one.
    pub failing: Option<SocketAddr>,
    /// Where the endpoint will be that is away.
    pub away: Option<SocketAddr>,
    /// The file of the authority that certifies the sink, beside the flow file.
    pub authority: &'a str,
}

/// The last segment of an endpoint's path: eight digits.
pub(super) fn segment(endpoint: usize) -> String {
    format!("{endpoint:08}")
}

/// What an endpoint's requests are signed with; of `{}` it is what `stub webhook-sink` wants.
pub(super) fn secret(kind: Kind, segment: &str) -> String {
    match kind {
        Kind::WebSub => format!("{HUB_SECRET}{segment}"),
        Kind::Webhooks | Kind::CatchUp | Kind::Idle => format!("{WEBHOOK_SECRET}{segment}"),
    }
}

/// The URL of an endpoint.
pub(super) fn url(case: &Case, sink: SocketAddr, endpoint: usize) -> String {
    let scheme = if case.is_tls { "https" } else { "http" };
    let query = if case.closes { "?close" } else { "" };
    format!("{scheme}://{sink}/e/{}{query}", segment(endpoint))
}

/// The path at which events of a topic, counted from 1, are published.
pub(super) fn topic_path(topic: usize) -> String {
    format!("/topics/t{topic}")
}

/// The text of the file.
pub(super) fn text(place: &Place<'_>) -> String {
    let Place { case, listen, .. } = place;
    let mut text = engine(place);
    for topic in 1..=case.topics {
        let path = topic_path(topic);
        // Callers of REST have tokens; who publishes has none.
        let open = match case.kind {
            Kind::Idle => ", auth: none",
            _ => "",
        };
        let keep = match case.kind {
            Kind::CatchUp => "16GiB, for: webhooks",
            _ => "256MiB",
        };
        // invariant: writing to a String does not fail.
        let _ = write!(
            text,
            "---\ntopic: t{topic}\npayload: event\ndurability: {}\n\
             publish: {{ http: \"POST {listen}{path}\"{open} }}\n\
             keep: {{ events: 1000, bytes: {keep} }}\nsubscribe:\n  listen: \"{listen}\"\n  \
             via: []\n",
            case.durability.name(),
        );
        match case.kind {
            Kind::Webhooks | Kind::CatchUp => endpoints(&mut text, place, topic),
            Kind::WebSub => text.push_str("  websub: { lease: 1h }\n"),
            Kind::Idle => {
                let _ = writeln!(
                    text,
                    "  auth: callers\n  webhooks:\n    manage: {{ secrets_key: \
                     \"{ENCRYPTION_KEY}\", per_caller: 1000000, total: 1000000, challenge: false }}"
                );
            }
        }
    }
    text
}

/// The settings of all: URLs that users set may lead to the sink, and publishers may wait for
/// deliveries between two events.
fn engine(place: &Place<'_>) -> String {
    let port = place.sink.port();
    let mut text = format!(
        "engine:\n  public_url: \"http://{}\"\n  log: {{ level: warn }}\n  \
         timeouts: {{ idle: 10m }}\n  \
         egress: {{ allow: [127.0.0.0/8], schemes: [http, https], ports: [{port}] }}\n",
        place.listen
    );
    if place.case.kind == Kind::Idle {
        // invariant: writing to a String does not fail.
        let _ = writeln!(
            text,
            "  auth: {{ callers: {{ jwt: {{ issuer: \"{ISSUER}\", audience: {AUDIENCE}, jwks: \
             jwks.json }} }} }}"
        );
    }
    text
}

fn endpoints(text: &mut String, place: &Place<'_>, topic: usize) {
    let case = place.case;
    text.push_str("  webhooks:\n    endpoints:\n");
    let tls = match case.is_tls {
        true => format!(", tls: {{ ca: {} }}", place.authority),
        false => String::new(),
    };
    let proof = |segment: &str| match case.is_signed {
        true => format!("secret: \"{}\"", secret(case.kind, segment)),
        false => "signature: none".to_owned(),
    };
    for endpoint in (topic - 1..case.endpoints).step_by(case.topics) {
        let segment = segment(endpoint);
        let proof = proof(&segment);
        let url = url(case, place.sink, endpoint);
        // invariant: writing to a String does not fail.
        let _ = writeln!(text, "      e{segment}: {{ url: \"{url}\", {proof}{tls} }}");
    }
    if let Some(address) = place.away.filter(|_| topic == 1) {
        let (url, proof) = (url(case, address, AWAY), proof(&segment(AWAY)));
        let _ = writeln!(
            text,
            "      away: {{ url: \"{url}\", {proof}, retry: {{ delay: 100ms, delay_max: 500ms }} }}"
        );
    }
    let failing = place.failing.filter(|_| topic == 1);
    for (name, query) in [
        ("hangs", "hang"),
        ("fails", "status=500"),
        ("flaps", "flap=2s"),
    ] {
        let Some(address) = failing else { break };
        // They are tried all the time, or a short sample would see nothing of them.
        let _ = writeln!(
            text,
            "      {name}: {{ url: \"http://{address}/{name}?{query}\", signature: none, timeout: \
             2s, retry: {{ delay: 100ms, delay_max: 1s }} }}"
        );
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    fn place(case: &Case) -> Place<'_> {
        Place {
            case,
            listen: "127.0.0.1:1".parse().unwrap(),
            sink: "127.0.0.1:2".parse().unwrap(),
            failing: None,
            away: None,
            authority: "ca.pem",
        }
    }

    fn case() -> Case {
        Case {
            endpoints: 6,
            topics: 2,
            is_signed: true,
            ..Case::default()
        }
    }

    #[test]
    fn endpoints_are_spread_over_topics() {
        let case = case();
        let text = text(&place(&case));
        let topics: Vec<&str> = text.split("---\n").collect();
        assert_eq!(topics.len(), 3, "{text}");
        for (topic, segments) in [(1, ["00", "02", "04"]), (2, ["01", "03", "05"])] {
            for segment in segments {
                let name = format!("e000000{segment}: {{ url: \"http://127.0.0.1:2/e/");
                assert!(topics[topic].contains(&name), "{text}");
            }
        }
        assert!(text.contains("secret: \"whsec_"), "{text}");
    }

    #[test]
    fn secrets_have_24_bytes() {
        let secret = secret(Kind::Webhooks, &segment(17));
        let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap());
        assert_eq!(key.unwrap().len(), 24);
    }

    #[test]
    fn cases_say_what_differs() {
        let mut case = case();
        case.is_signed = false;
        let text_of = |case: &Case| text(&place(case));
        assert!(text_of(&case).contains("signature: none }"));
        case.is_tls = true;
        let tls = text_of(&case);
        assert!(tls.contains("https://127.0.0.1:2/e/00000000\""), "{tls}");
        assert!(tls.contains("tls: { ca: ca.pem }"), "{tls}");
        case.kind = Kind::WebSub;
        assert!(text_of(&case).contains("  websub: { lease: 1h }\n"));
        case.kind = Kind::Idle;
        let idle = text_of(&case);
        assert!(idle.contains("  auth: callers\n"), "{idle}");
        assert!(idle.contains("jwks: jwks.json"), "{idle}");
    }

    #[test]
    fn events_are_kept_for_the_endpoint_that_is_away() {
        let case = Case {
            kind: Kind::CatchUp,
            ..case()
        };
        let text = text(&Place {
            away: Some("127.0.0.1:3".parse().unwrap()),
            ..place(&case)
        });
        let away = "      away: { url: \"http://127.0.0.1:3/e/99999999\", secret: \"whsec_";
        assert_eq!(text.matches(away).count(), 1, "{text}");
        assert!(text.contains("bytes: 16GiB, for: webhooks }"), "{text}");
    }

    #[test]
    fn failing_endpoints_are_on_the_first_topic_only() {
        let case = case();
        let text = text(&Place {
            failing: Some("127.0.0.1:3".parse().unwrap()),
            ..place(&case)
        });
        assert_eq!(text.matches("127.0.0.1:3/").count(), 3, "{text}");
        assert!(text.contains("127.0.0.1:3/hangs?hang\""), "{text}");
        assert!(text.contains("127.0.0.1:3/fails?status=500\""), "{text}");
        assert!(text.contains("127.0.0.1:3/flaps?flap=2s\""), "{text}");
    }
}
