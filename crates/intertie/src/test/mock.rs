//! What stands in for other systems: the answers of a test's mocks, in their order.

use std::cell::RefCell;

use component::handler::Services;
use component::value_template::ValueTemplate;
use expr::{Value, value};
use flow::tests_section::{Answer, AnswerKind, Field, Mock, Payload, encode};
use message::{Body, Fault, Headers, Kind, Origin, Reply, Retry};

use super::seen::Seen;

/// The mocks of a test, with how often each answer has been used.
pub(super) struct Mocks<'t> {
    mocks: &'t [Mock],
    used: RefCell<Vec<Vec<u64>>>,
}

/// What a mock does with a request.
pub(super) enum Chosen<'t> {
    /// It answers so.
    Answer(&'t Answer),
    /// There is no mock of it.
    NoMock,
    /// This mock has no answer left that fits.
    NoAnswer(&'t str),
}

impl<'t> Mocks<'t> {
    pub fn new(mocks: &'t [Mock]) -> Self {
        let used = mocks.iter().map(|mock| vec![0; mock.answers.len()]);
        Self {
            mocks,
            used: RefCell::new(used.collect()),
        }
    }

    /// Chooses the answer for a request to a system that has these names.
    ///
    /// # Errors
    /// What a condition says that fails.
    pub fn choose(
        &self,
        names: &[String],
        seen: &Seen,
        services: &dyn Services,
    ) -> Result<Chosen<'t>, Fault> {
        let position = |name: &String| self.mocks.iter().position(|mock| mock.name == *name);
        let Some(at) = names.iter().find_map(position) else {
            return Ok(Chosen::NoMock);
        };
        let Some(mock) = self.mocks.get(at) else {
            return Ok(Chosen::NoMock);
        };
        for (number, answer) in mock.answers.iter().enumerate() {
            let used = self
                .used
                .borrow()
                .get(at)
                .and_then(|it| it.get(number).copied());
            if answer.times.is_some_and(|times| used >= Some(times)) {
                continue;
            }
            let holds = match &answer.when {
                Some(when) => seen.exchange().holds(when, services)?,
                None => true,
            };
            if !holds {
                continue;
            }
            let mut used = self.used.borrow_mut();
            if let Some(count) = used.get_mut(at).and_then(|it| it.get_mut(number)) {
                *count += 1;
            }
            return Ok(Chosen::Answer(answer));
        }
        Ok(Chosen::NoAnswer(&mock.name))
    }
}

/// What an answer is, as the data path would hand it over.
///
/// # Errors
/// Of the outer result: why the mock cannot answer. Of the inner one: how the call fails.
pub(super) fn reply(
    answer: &Answer,
    seen: &Seen,
    services: &dyn Services,
) -> Result<Result<Reply, Fault>, String> {
    match &answer.kind {
        AnswerKind::Fails(kind) => Ok(Err(failure(*kind))),
        AnswerKind::Replies {
            status,
            headers,
            payload,
        } => make(*status, (headers, payload), seen, services).map(Ok),
    }
}

fn make(
    status: u16,
    (fields, payload): (&[Field], &Payload),
    seen: &Seen,
    services: &dyn Services,
) -> Result<Reply, String> {
    let mut reply = Reply::new(status);
    for field in fields {
        let Some(value) = &field.value else { continue };
        for line in lines(&evaluate(value, seen, services)?) {
            if !Headers::is_value(line.as_bytes()) {
                return Err(format!("`{}` cannot have this value", field.name));
            }
            reply.headers.append(&field.name, line);
        }
    }
    let given = reply
        .headers
        .get("Content-Type")
        .map(String::from_utf8_lossy);
    let media_type = payload.content_type.as_deref().or(given.as_deref());
    let (bytes, content_type) = match (&payload.file, &payload.value) {
        (Some(bytes), _) => (bytes.clone(), media_type.map(str::to_owned)),
        (None, Some(value)) => encode(&evaluate(value, seen, services)?, media_type)?,
        (None, None) => (bytes::Bytes::new(), None),
    };
    if let Some(content_type) = content_type.filter(|_| given.is_none()) {
        reply.headers.append("Content-Type", content_type);
    }
    reply.body = Body::from(bytes);
    Ok(reply)
}

/// What a value of a test is when it sees this request.
pub(super) fn evaluate(
    template: &ValueTemplate,
    seen: &Seen,
    services: &dyn Services,
) -> Result<Value, String> {
    match template {
        ValueTemplate::Fixed(value) => Ok(value.clone()),
        template => template
            .make(&mut seen.exchange(), services)
            .map_err(|fault| explain(&fault)),
    }
}

/// The texts of a value: one, or several of a list.
pub(super) fn lines(value: &Value) -> Vec<String> {
    let one = std::slice::from_ref(value);
    let items = value::as_array(value).unwrap_or(one).iter();
    let texts = items.filter_map(value::scalar_text);
    texts.map(|text| text.into_owned()).collect()
}

/// What is known of a failure.
pub(super) fn explain(fault: &Fault) -> String {
    match &fault.cause {
        Some(cause) => format!("{}: {cause}", fault.detail),
        None => fault.detail.to_string(),
    }
}

/// A failure as the data path makes it.
pub(super) fn failure(kind: Kind) -> Fault {
    let (detail, retry) = match kind {
        Kind::Timeout => ("the back end did not answer in time", Retry::IfRepeatable),
        Kind::Connection => ("the back end cannot be reached", Retry::Yes),
        Kind::Unavailable => ("the back end is busy", Retry::Yes),
        Kind::Limited => ("the back end is asked too often", Retry::Yes),
        Kind::Nack => ("the broker has not taken the message", Retry::IfRepeatable),
        Kind::Unroutable => ("the broker knows nobody who wants the message", Retry::No),
        Kind::Unauthorized => ("the back end does not know who asks", Retry::No),
        Kind::Forbidden => ("the back end does not let whoever asks", Retry::No),
        _ => ("the back end does not take the message", Retry::No),
    };
    Fault::new(kind, Origin::Upstream, detail)
        .with_retry(retry)
        .with_cause("a mock of the test")
}
