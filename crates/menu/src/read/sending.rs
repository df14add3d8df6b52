//! How screens reach a gateway that does not take them in the reply: `answers` and `push`.

use std::sync::Arc;
use std::time::Duration;

use component::block::Block;
use config::{Node, Spanned};

use super::{Reading, number};
use crate::codes::BAD_MENU;
use crate::plan::{Acknowledge, Acknowledgement, Answers, Push};

/// How long it may take to send a screen unless the file says otherwise, and the bounds of that.
const TIMEOUT: Duration = Duration::from_secs(60);
const TIMEOUT_MIN: Duration = Duration::from_secs(1);
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// The most requests without an answer unless the file says otherwise.
const MAX: usize = 10_000;
/// The status of a reply that acknowledges.
const ACCEPTED: u16 = 202;

impl Reading<'_, '_> {
    /// Declares the variables to which flows give values when they begin a session.
    pub fn declare_pushed(&mut self, push: &Node) {
        let screens = push.get("screens").and_then(Node::as_mapping);
        for entry in screens.unwrap_or_default() {
            let names = entry.value.as_sequence().unwrap_or_default();
            names.iter().for_each(|name| self.declare(name));
        }
    }

    /// Reads `answers`.
    pub fn read_answers(&mut self, node: &Node) -> Option<Answers> {
        let send = self.read_sending("answers", node.get("do")?);
        let acknowledge = match node.get("acknowledge").and_then(Node::as_str) {
            Some("after") => Acknowledge::After,
            _ => Acknowledge::Before,
        };
        let reply = node.get("reply");
        let text = |key: &str| reply.and_then(|it| it.get(key)?.as_str().map(str::to_owned));
        let status = reply.and_then(|it| it.get("status"));
        let status = status.and_then(number).map_or(ACCEPTED, |it| it as u16);
        let body = text("body").unwrap_or_default();
        if let Some(node) = reply.filter(|_| matches!(status, 204 | 205) && !body.is_empty()) {
            let message = format!("a reply with status {status} has no body");
            self.context.report.error(BAD_MENU, node.span, message);
        }
        let content_type = text("content_type");
        Some(Answers {
            send: send?,
            acknowledge,
            reply: Acknowledgement {
                status,
                content_type: content_type.unwrap_or_else(|| "text/plain; charset=utf-8".into()),
                body,
            },
            timeout: self.time(node.get("timeout"), TIMEOUT, TIMEOUT_MIN..=TIMEOUT_MAX),
            max: node
                .get("max")
                .and_then(number)
                .map_or(MAX, |it| it as usize),
        })
    }

    /// Reads `push`.
    pub fn read_push(&mut self, node: &Node) -> Option<Push> {
        let send = self.read_sending("push", node.get("do")?);
        let session = match node.get("session") {
            None => None,
            Some(session) => {
                let text = session.as_str()?.to_owned();
                let span = session.span;
                Some(self.context.expression(&Spanned { value: text, span })?)
            }
        };
        let screens = node.get("screens").and_then(Node::as_mapping)?;
        let mut known = Vec::new();
        for entry in screens {
            let name = Node {
                value: config::Value::String(entry.key.clone()),
                span: entry.key_span,
            };
            let screen = self.screen(&name)?;
            let variables = entry.value.as_sequence()?.iter();
            let variables = variables.filter_map(|it| it.as_str().map(Arc::from));
            known.push((screen, variables.collect()));
        }
        Some(Push {
            screens: known,
            send: send?,
            session,
            timeout: self.time(node.get("timeout"), TIMEOUT, TIMEOUT_MIN..=TIMEOUT_MAX),
        })
    }

    /// Steps that send a screen. Their variables are theirs alone.
    fn read_sending(&mut self, name: &str, items: &Node) -> Option<Block> {
        let block = self.context.inner_branch(name, items)?;
        if block.ends_flow() || block.streams() {
            let message = "the reply to the gateway is not made by the steps that send a screen";
            let diagnostic = self.context.report.error(BAD_MENU, items.span, message);
            diagnostic.hint("`answers.reply` says what it is");
        }
        Some(block)
    }
}
