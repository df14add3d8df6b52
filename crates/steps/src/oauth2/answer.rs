//! What a token URL answers (RFC 6749, sections 5.1 and 5.2).

use std::time::Duration;

use message::{Fault, Headers, Kind, Origin, Reply, Retry};
use serde::Deserialize;

/// The longest life of a token that is heeded: a longer one is asked for again after it.
const LONGEST: u64 = 366 * 24 * 3600;

/// A token.
pub(super) struct Token {
    text: String,
    /// How long it is good; no end when the answer names none.
    pub life: Option<Duration>,
    /// The refresh token for the next one, when the answer has one.
    pub refresh: Option<String>,
}

impl Token {
    /// The value of `Authorization` (RFC 6750, section 2.1).
    pub fn authorization(&self) -> String {
        format!("Bearer {}", self.text)
    }
}

/// The members of an answer that matter.
#[derive(Deserialize)]
struct Answer {
    access_token: Option<String>,
    token_type: Option<String>,
    expires_in: Option<serde_json::Value>,
    refresh_token: Option<String>,
    error: Option<String>,
}

/// Reads an answer. No part of a token is told.
///
/// # Errors
/// `connection` when it has no token of the type `Bearer`, `unauthorized` when it is a refusal, and
/// the status' own failure otherwise.
pub(super) fn read(reply: &Reply) -> Result<Token, Fault> {
    let answer: Option<Answer> = serde_json::from_slice(reply.body.as_bytes()).ok();
    if reply.status != 200 {
        let error = answer.and_then(|it| it.error).unwrap_or_default();
        let error: String = error.chars().take(100).collect();
        let cause = format!("status {} {}", reply.status, error.escape_debug());
        // Ours to set right: the status is not the one of the system that was to be asked.
        if matches!(reply.status, 400..=403) {
            let detail = match error.as_str() {
                // RFC 6749, section 5.2: expired, revoked, or of another client.
                "invalid_grant" => "the token server takes what it was shown no longer",
                _ => "the token server does not know who asks",
            };
            let fault = Fault::new(Kind::Unauthorized, Origin::Upstream, detail);
            return Err(fault.with_status(502).with_cause(cause.trim_end()));
        }
        let detail = "the token server did not answer with a token";
        let mut fault = Fault::new(Kind::Connection, Origin::Upstream, detail);
        if matches!(reply.status, 408 | 429 | 500..) {
            fault.retry = Retry::Yes;
        }
        return Err(fault.with_cause(cause.trim_end()));
    }
    let unusable = |cause: &str| {
        let detail = "the token server sent an answer that cannot be used";
        Fault::new(Kind::Connection, Origin::Upstream, detail).with_cause(cause)
    };
    let answer =
        answer.ok_or_else(|| unusable("its answer is not JSON, or not as RFC 6749 says"))?;
    let is_bearer = |kind: &String| kind.eq_ignore_ascii_case("bearer");
    if !answer.token_type.as_ref().is_none_or(is_bearer) {
        return Err(unusable("the token is not of the type Bearer"));
    }
    let is_token = |text: &String| !text.is_empty() && Headers::is_value(text.as_bytes());
    let text = answer.access_token.filter(is_token);
    let text = text.ok_or_else(|| unusable("there is no `access_token` that can be sent"))?;
    let life = answer.expires_in.as_ref().and_then(seconds);
    let refresh = answer.refresh_token.filter(|it| !it.is_empty());
    Ok(Token {
        text,
        life,
        refresh,
    })
}

/// Some servers write the number as a text.
fn seconds(value: &serde_json::Value) -> Option<Duration> {
    let seconds = match value {
        serde_json::Value::String(text) => text.trim().parse().ok()?,
        value => value.as_f64()?,
    };
    let is_time = seconds.is_finite() && seconds >= 0.0;
    is_time.then(|| Duration::from_secs((seconds as u64).min(LONGEST)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Result<(String, Option<u64>), String> {
        let reply = Reply::with_content(status, "application/json", body.as_bytes().to_vec());
        let token = read(&reply).map_err(|fault| fault.to_string())?;
        Ok((token.authorization(), token.life.map(|it| it.as_secs())))
    }

    #[test]
    fn tokens_are_read_with_their_life() {
        let token = |text: &str, life| Ok((format!("Bearer {text}"), life));
        let full = r#"{"access_token":"a1","token_type":"bearer","expires_in":3600}"#;
        assert_eq!(answer(200, full), token("a1", Some(3600)));
        let text = r#"{"access_token":"a1","token_type":"Bearer","expires_in":"60"}"#;
        assert_eq!(answer(200, text), token("a1", Some(60)));
        assert_eq!(answer(200, r#"{"access_token":"a1"}"#), token("a1", None));
    }

    #[test]
    fn what_is_no_token_is_told_without_it() {
        for (status, body, expected) in [
            (200, "", "connection: the token server sent an answer"),
            (200, r#"{"access_token":"s3cr3t\n"}"#, "connection: "),
            (
                200,
                r#"{"access_token":"s3cr3t","token_type":"mac"}"#,
                "connection: ",
            ),
            (
                401,
                r#"{"error":"invalid_client"}"#,
                "unauthorized: the token server does not know who asks (status 401 invalid_client)",
            ),
            (503, "", "connection: the token server did not answer"),
        ] {
            let problem = answer(status, body).unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
            assert!(!problem.contains("s3cr3t"), "{problem}");
        }
    }
}
