//! Reads what stands under `poll:` and makes a poller of it.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use component::block::Block;
use component::connection::Connections;
use component::definition::{BlockReader, BuildContext, Surroundings, compile_expression};
use component::evaluation::Evaluation;
use component::failure::{FailureName, Handlers, Matcher};
use component::resilience::{Retry, RetryConfig};
use component::scope::Scope;
use component::state::StateKey;
use component::upstream::UpstreamPlan;
use config::{ByteSize, Entry, Node, Report, Span, Spanned, Value};
use expr::jq::Expression;
use steps::Asker;

use super::codes::{BAD_PAGES, BAD_POINTER, BAD_POLL, POLL_RANGE};
use super::config::{CursorConfig, OfPoll, OffsetConfig, PageConfig, PaginationConfig, PollConfig};
use super::fetch::{Fetcher, Slots};
use super::memory::{Memory, digest};
use super::pages::{Kind, Pages, Place};
use super::pointer::Pointer;
use super::run::{Poller, Timing};

/// The times that `every` may have.
const EVERY: RangeInclusive<Duration> = Duration::from_millis(100)..=DAY;
const DAY: Duration = Duration::from_secs(24 * 3600);
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(3600);
/// The sizes that an answer may have.
const BODY: RangeInclusive<u64> = 1..=64 << 20;

/// How many redirects are followed when nothing is said.
const REDIRECTS: u64 = 5;

/// Where polling stands.
pub(super) struct Surrounded<'a, 'r> {
    pub report: &'r mut Report,
    /// The name of the flow or topic.
    pub name: &'a Arc<str>,
    pub connections: &'a Connections,
    pub evaluation: &'a Evaluation,
    pub surroundings: &'a Surroundings<'a>,
    /// The most bytes of an answer, where polling does not say it itself.
    pub body_max: Option<u64>,
}

/// What has been read.
pub(super) struct Read {
    pub poller: Poller,
    pub upstreams: Vec<Arc<UpstreamPlan>>,
    /// What tells these settings from others.
    pub settings: String,
}

/// What is evaluated beside the request.
struct Evaluated {
    slots: Slots,
    map: Option<Expression>,
    keep: Option<Expression>,
    pages: Option<Pages>,
    /// Where the expressions stand.
    texts: Vec<Span>,
}

/// Makes a poller. Every problem is reported; `None` when there was one.
pub(super) fn read(
    node: &Node,
    config: &PollConfig,
    surrounded: &mut Surrounded<'_, '_>,
) -> Option<Read> {
    let before = surrounded.report.errors();
    let report = &mut *surrounded.report;
    let timing = read_timing(config, report);
    let timeout = time("timeout", config.timeout.as_ref(), TIMEOUT, report);
    let retry = read_retry(&config.retry, report);
    let body_max = read_body_max(config.body_max.as_ref(), report);
    let pointer = config.pointer.as_ref();
    let pointer = pointer.map_or_else(|| Some(Pointer::default()), |it| read_pointer(it, report));
    let conditional = read_conditional(node, config, report);
    let mut scope = surrounded.evaluation.scope();
    let evaluated = read_evaluated(config, &mut scope, report)?;
    let (asker, upstreams) = read_asker(node, &mut scope, evaluated.texts, surrounded);
    if surrounded.report.errors() > before {
        return None;
    }
    let asker = asker?;
    let (settings, memory) = remembered(node, &asker, surrounded);
    let fetcher = Fetcher {
        asker: match config.redirects {
            Some(_) => asker,
            None => asker.following(REDIRECTS),
        },
        context: surrounded.evaluation.context(surrounded.name, &scope),
        slots: evaluated.slots,
        timeout: timeout.unwrap_or(Duration::from_secs(10)),
        retry,
        decode: config.decode.into(),
        pointer: pointer?,
        map: evaluated.map,
        keep: evaluated.keep,
        pages: evaluated.pages,
        conditional,
        body_max: surrounded.body_max.unwrap_or(body_max),
    };
    let poller = Poller {
        name: Arc::clone(surrounded.name),
        timing,
        fetcher,
        memory,
    };
    Some(Read {
        poller,
        upstreams,
        settings,
    })
}

/// What tells these settings from others, and what a poller with them remembers.
fn remembered(
    node: &Node,
    asker: &Asker,
    surrounded: &Surrounded<'_, '_>,
) -> (String, Arc<Memory>) {
    let system = format!("{:?}", asker.upstream().endpoints);
    let settings = digest(format!("{} {system}", node.to_json()).as_bytes());
    let key = StateKey {
        flow: Arc::clone(surrounded.name),
        step: "poll".into(),
        kind: "poll",
        settings: settings.clone(),
    };
    let states = surrounded.surroundings.states;
    (settings, states.get(key, Memory::default))
}

fn read_evaluated(
    config: &PollConfig,
    scope: &mut Scope,
    report: &mut Report,
) -> Option<Evaluated> {
    let slots = Slots {
        last: scope.declare("last")?,
        now: scope.declare("now")?,
        page: match config.pagination {
            Some(_) => Some(scope.declare("page")?),
            None => None,
        },
    };
    let mut texts = Vec::new();
    let mut expression = |text: &Option<Spanned<String>>, report: &mut Report| {
        let text = text.as_ref()?;
        texts.push(text.span);
        compile_expression(&text.value, text.span, scope, report)
    };
    let map = expression(&config.map, report);
    let keep = expression(&config.keep, report);
    let pages = match &config.pagination {
        Some(pages) => read_pages(pages, scope, &mut texts, report),
        None => None,
    };
    Some(Evaluated {
        slots,
        map,
        keep,
        pages,
        texts,
    })
}

fn read_timing(config: &PollConfig, report: &mut Report) -> Timing {
    let every = time("every", Some(&config.every), EVERY, report).unwrap_or(DAY);
    let jitter = config.jitter.as_ref();
    Timing {
        every,
        jitter: time("jitter", jitter, Duration::ZERO..=every, report).unwrap_or_default(),
    }
}

/// A time in its range; one outside is reported.
fn time(
    name: &str,
    value: Option<&Spanned<config::Duration>>,
    range: RangeInclusive<Duration>,
    report: &mut Report,
) -> Option<Duration> {
    let value = value?;
    if !range.contains(&value.value.0) {
        let (least, most) = range.into_inner();
        let shown = (value.value, config::Duration(least), config::Duration(most));
        refuse(name, shown, value.span, report);
        return None;
    }
    Some(value.value.0)
}

/// A count in its range; one outside is reported.
fn count(
    name: &str,
    value: Option<&Spanned<u64>>,
    range: RangeInclusive<u64>,
    report: &mut Report,
) -> Option<u64> {
    let value = value?;
    if !range.contains(&value.value) {
        let shown = (value.value, range.start(), range.end());
        refuse(name, shown, value.span, report);
        return None;
    }
    Some(value.value)
}

fn read_body_max(value: Option<&Spanned<ByteSize>>, report: &mut Report) -> u64 {
    let Some(value) = value else {
        return 1 << 20;
    };
    if !BODY.contains(&value.value.0) {
        let shown = (value.value, ByteSize(*BODY.start()), ByteSize(*BODY.end()));
        refuse("body_max", shown, value.span, report);
    }
    value.value.0
}

fn refuse<T: Display, U: Display>(
    name: &str,
    (value, least, most): (T, U, U),
    span: Span,
    report: &mut Report,
) {
    let message = format!("`{name}` is {value}, outside its range");
    let diagnostic = report.error(POLL_RANGE, span, message);
    diagnostic.hint(format!("from {least} to {most}"));
}

fn read_pointer(text: &Spanned<String>, report: &mut Report) -> Option<Pointer> {
    let pointer = Pointer::parse(&text.value);
    if pointer.is_none() {
        let message = format!("`{}` is no JSON Pointer", text.value.escape_debug());
        let diagnostic = report.error(BAD_POINTER, text.span, message);
        diagnostic.hint("write `/data/items`; a `~` in a name is `~0`, a `/` is `~1` (RFC 6901)");
    }
    pointer
}

fn read_retry(config: &RetryConfig<OfPoll>, report: &mut Report) -> Retry {
    let of_requests = |name: &FailureName| {
        let matcher = Matcher::of_name(&name.to_text());
        matcher.is_some_and(|it| !matches!(it, Matcher::Type(_)))
    };
    let mut are_known = true;
    if let Some(names) = config.failures() {
        for name in names.value.iter().filter(|name| !of_requests(name)) {
            are_known = false;
            // Nobody raises errors here.
            let message = format!("no request fails with `{}`", name.to_text().escape_debug());
            let diagnostic = report.error(BAD_POLL, names.span, message);
            diagnostic.hint("write statuses, `4xx`, `5xx`, `connection`, `timeout` or `any`");
        }
    }
    // What is wrong with them has been told.
    let policy = match are_known {
        true => config.policy(BAD_POLL, report),
        false => RetryConfig::<OfPoll>::default().policy(BAD_POLL, report),
    };
    Retry {
        policy,
        // To ask again is what a poll does.
        only_safe: false,
        counts: Arc::default(),
    }
}

fn read_conditional(node: &Node, config: &PollConfig, report: &mut Report) -> bool {
    let method = node.get("method").and_then(Node::as_str);
    let has_body = node
        .get("body")
        .is_some_and(|it| !matches!(it.value, Value::Null));
    let is_get = method.map_or(!has_body, |method| method == "GET");
    let may = is_get && config.pagination.is_none();
    let Some(said) = &config.conditional else {
        return may;
    };
    if said.value && !may {
        let message = "only a `GET` without `pagination` can be asked whether it has changed";
        let diagnostic = report.error(BAD_POLL, said.span, message);
        diagnostic.hint("leave `conditional` out: every answer is compared with the last one");
    }
    said.value
}

fn read_pages(
    config: &Spanned<PaginationConfig>,
    scope: &Scope,
    texts: &mut Vec<Span>,
    report: &mut Report,
) -> Option<Pages> {
    let Spanned { value: said, span } = config;
    let kinds = [
        said.page.is_some(),
        said.offset.is_some(),
        said.cursor.is_some(),
        said.link,
        said.next.is_some(),
    ];
    if kinds.iter().filter(|it| **it).count() != 1 {
        let message = "`pagination` has one of `page`, `offset`, `cursor`, `link` and `next`";
        let diagnostic = report.error(BAD_PAGES, *span, message);
        diagnostic.hint("write `pagination: { page: { param: page, size: 100 } }`");
        return None;
    }
    let kind = match said {
        PaginationConfig { page: Some(it), .. } => read_page(it, report),
        PaginationConfig {
            offset: Some(it), ..
        } => read_offset(it, report),
        PaginationConfig {
            cursor: Some(it), ..
        } => read_cursor(it, scope, texts, report)?,
        PaginationConfig { next: Some(it), .. } => {
            Kind::Next(read_place(it, scope, texts, report)?)
        }
        _ => Kind::Link,
    };
    let items = said.items.as_ref();
    let items = items.map_or_else(|| Some(Pointer::default()), |it| read_pointer(it, report));
    let most = count("max_pages", said.max_pages.as_ref(), 1..=10_000, report);
    Some(Pages {
        kind,
        items: items?,
        most: most.unwrap_or(100),
    })
}

fn parameter(name: Option<&Spanned<String>>, default: &str, report: &mut Report) -> String {
    let Some(name) = name else {
        return default.to_owned();
    };
    if name.value.is_empty() || name.value.contains("${") {
        let message = "this is no name of a query parameter";
        let diagnostic = report.error(BAD_PAGES, name.span, message);
        diagnostic.hint(
            "write a name such as `page`; a value such as `${ $page.by }` can stand in \
                         `query` and `body`",
        );
    }
    name.value.clone()
}

fn read_page(config: &PageConfig, report: &mut Report) -> Kind {
    if let Some(name) = config.size_param.as_ref().filter(|_| config.size.is_none()) {
        let message = "`size_param` has no effect without `size`";
        let diagnostic = report.error(BAD_PAGES, name.span, message);
        diagnostic.hint("say how many items a page has: `size: 100`");
    }
    let size_param = config.size_param.as_ref();
    Kind::Counted {
        param: parameter(config.param.as_ref(), "page", report),
        size_param: size_param.map(|name| parameter(Some(name), "", report)),
        size: count("size", config.size.as_ref(), 1..=100_000, report),
        start: config.start.unwrap_or(1),
        by_item: false,
    }
}

fn read_offset(config: &OffsetConfig, report: &mut Report) -> Kind {
    let size = count("size", config.size.as_ref(), 1..=100_000, report);
    Kind::Counted {
        param: parameter(config.param.as_ref(), "offset", report),
        size_param: Some(parameter(config.size_param.as_ref(), "limit", report)),
        size: Some(size.unwrap_or(100)),
        start: config.start.unwrap_or(0),
        by_item: true,
    }
}

fn read_cursor(
    config: &CursorConfig,
    scope: &Scope,
    texts: &mut Vec<Span>,
    report: &mut Report,
) -> Option<Kind> {
    let param = parameter(config.param.as_ref(), "cursor", report);
    let next = read_place(&config.next, scope, texts, report)?;
    Some(Kind::Cursor { param, next })
}

/// A JSON Pointer begins with `/`, which no expression does.
fn read_place(
    text: &Spanned<String>,
    scope: &Scope,
    texts: &mut Vec<Span>,
    report: &mut Report,
) -> Option<Place> {
    if text.value.starts_with('/') {
        return read_pointer(text, report).map(Place::Pointer);
    }
    texts.push(text.span);
    let expression: Option<Expression> = compile_expression(&text.value, text.span, scope, report);
    expression.map(|it| Place::Expression(Box::new(it)))
}

/// The keys of the step `http` that polling has too.
const ASKED: [&str; 6] = ["method", "headers", "query", "body", "tls", "redirects"];

/// Reads the request, as the step `http` has it.
fn read_asker(
    node: &Node,
    scope: &mut Scope,
    mut compiled: Vec<Span>,
    surrounded: &mut Surrounded<'_, '_>,
) -> (Option<Asker>, Vec<Arc<UpstreamPlan>>) {
    let entries = node.as_mapping().unwrap_or_default().iter();
    let asked = entries.filter_map(|entry| {
        let key = match entry.key.as_str() {
            "url" => "to",
            key if ASKED.contains(&key) => key,
            _ => return None,
        };
        Some(Entry {
            key: key.to_owned(),
            ..entry.clone()
        })
    });
    let http = Node {
        value: Value::Mapping(asked.collect()),
        span: node.span,
    };
    let (mut upstreams, mut calls, mut places) = (Vec::new(), Vec::new(), Vec::new());
    let mut context = BuildContext {
        report: &mut *surrounded.report,
        flow: surrounded.name,
        label: "poll".into(),
        path: "poll".to_owned(),
        trigger: None,
        may_have_caller: false,
        identities: None,
        connections: surrounded.connections,
        is_last: false,
        may_stream: false,
        scope,
        upstreams: &mut upstreams,
        calls: &mut calls,
        compiled: &mut compiled,
        places: &mut places,
        blocks: &NoSteps,
        surroundings: surrounded.surroundings,
    };
    let asker = Asker::read(&http, &mut context);
    if asker.is_some() {
        refuse_holes(node, &compiled, surrounded.report);
    }
    (asker, upstreams)
}

/// A `${ }` in a text that nobody evaluates is a mistake.
fn refuse_holes(node: &Node, compiled: &[Span], report: &mut Report) {
    match &node.value {
        Value::String(text) if text.contains("${") && !compiled.contains(&node.span) => {
            let message = "no expression can stand here";
            let diagnostic = report.error(BAD_POLL, node.span, message);
            diagnostic.hint("`${ }` can stand in `url`, `headers`, `query` and `body`");
        }
        Value::Sequence(items) => {
            items
                .iter()
                .for_each(|item| refuse_holes(item, compiled, report));
        }
        Value::Mapping(entries) => {
            let values = entries.iter().map(|entry| &entry.value);
            values.for_each(|value| refuse_holes(value, compiled, report));
        }
        _ => {}
    }
}

/// There are no steps within polling.
struct NoSteps;

impl BlockReader for NoSteps {
    fn read_block(&self, items: &Node, _: bool, context: &mut BuildContext<'_>) -> Option<Block> {
        refuse_steps(items, context);
        None
    }

    fn read_one(
        &self,
        item: &Node,
        _: &[&str],
        _: bool,
        context: &mut BuildContext<'_>,
    ) -> Option<Block> {
        refuse_steps(item, context);
        None
    }

    fn read_handlers(&self, clauses: &Node, context: &mut BuildContext<'_>) -> Option<Handlers> {
        refuse_steps(clauses, context);
        None
    }
}

fn refuse_steps(node: &Node, context: &mut BuildContext<'_>) {
    let message = "there are no steps within `poll`";
    let diagnostic = context.report.error(BAD_POLL, node.span, message);
    diagnostic.hint("`map` says what is made of an answer");
}
