//! What clients are asked to do, and what must come of it whoever the back end is.

/// The bytes of an early refusal's request: more than sockets and windows hold.
const REFUSED: &str = "body=9000000";
/// A cookie as long as some applications make them.
const COOKIE_LENGTH: usize = 6000;
/// How long a small request may take.
const SMALL_SECONDS: u64 = 10;
/// How long a crowd of requests at a time may take: httpx needs 20 s for its TLS handshakes alone.
const CROWD_SECONDS: u64 = 60;
/// The slowest that a large body may be.
const BYTES_PER_SECOND: u64 = 10_000_000;
/// How large a body is that a client reads slowly: more than sockets and windows hold.
pub const SLOW_SIZE: u64 = 8_000_000;
const CHUNKED_SIZE: u64 = 300_000;
const EXPECT_SIZE: u64 = 100_000;
/// The size of `/file`.
pub const FILE_SIZE: u64 = 1_048_576;

/// What the reply's body must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// What it is without the proxy.
    Any,
    Text(&'static str),
    /// So many bytes of the pattern.
    Pattern(u64),
    /// The length and the hash of so many bytes of the pattern, which the back end got.
    Digest(u64),
}

/// A request, or two of which the second follows on the same client.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    /// What the client is sent: words with tabs between. `@` stands for the base URL.
    words: String,
    /// The status and the body that are right; none for those that back ends answer differently.
    pub status: Option<&'static str>,
    pub body: Body,
    seconds: u64,
}

impl Scenario {
    fn new(name: &'static str, status: &'static str, body: Body, words: &str) -> Self {
        Self {
            name,
            words: words.replace(' ', "\t"),
            status: Some(status),
            body,
            seconds: SMALL_SECONDS,
        }
    }

    /// With a header, whose value may hold spaces.
    fn header(mut self, header: &str) -> Self {
        self.words = format!("{}\theader={header}", self.words);
        self
    }

    fn any_status(mut self) -> Self {
        self.status = None;
        self
    }

    fn within(mut self, seconds: u64) -> Self {
        self.seconds = seconds;
        self
    }

    fn large(mut self, size: u64) -> Self {
        self.seconds = 60 + size / BYTES_PER_SECOND;
        self
    }

    /// The line for a client, and how many seconds it may take.
    pub fn line(&self, mode: &str, base: &str) -> (String, u64) {
        let words = self.words.replace('@', base);
        (
            format!("mode={mode}\tlimit={}\t{words}", self.seconds),
            self.seconds,
        )
    }
}

/// Everything but the large bodies.
pub fn small() -> Vec<Scenario> {
    let mut all = plain();
    all.extend(conditional());
    all.extend(framing());
    all.extend(crowds());
    all
}

fn plain() -> Vec<Scenario> {
    let hello = Body::Text("hello\n");
    let inspect = "method=GET url=@/inspect?a=1&b=%2F text=1";
    let cookie = format!("Cookie: first=1; long={}", "x".repeat(COOKIE_LENGTH));
    vec![
        Scenario::new("get", "200", hello, "method=GET url=@/hello text=1"),
        Scenario::new("head", "200", Body::Any, "method=HEAD url=@/hello"),
        Scenario::new(
            "post",
            "200",
            Body::Pattern(5),
            "method=POST url=@/whole body=5",
        ),
        Scenario::new(
            "post empty",
            "200",
            Body::Pattern(0),
            "method=POST url=@/whole body=0",
        ),
        Scenario::new("204", "204", Body::Pattern(0), "method=GET url=@/nothing"),
        Scenario::new("404", "404", Body::Any, "method=GET url=@/missing"),
        Scenario::new("request", "200", Body::Any, inspect).header("X-Own: a, b"),
        Scenario::new("gzip", "200", Body::Any, "method=GET url=@/text")
            .header("Accept-Encoding: gzip"),
        Scenario::new(
            "cookies",
            "200",
            Body::Any,
            "method=GET url=@/cookies text=1",
        )
        .header(&cookie),
        Scenario::new(
            "redirect",
            "302",
            Body::Any,
            "method=GET url=@/redirect then=@/hello",
        ),
    ]
}

fn conditional() -> Vec<Scenario> {
    let file = "method=GET url=@/file";
    vec![
        Scenario::new("304", "304", Body::Any, "method=GET url=@/hello")
            .header("If-None-Match: \"v1\""),
        Scenario::new("304 file", "304", Body::Any, file)
            .header("If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT"),
        Scenario::new("file", "200", Body::Pattern(FILE_SIZE), file),
        Scenario::new("range", "206", Body::Any, file).header("Range: bytes=1000-1099"),
        Scenario::new("range end", "206", Body::Any, file).header("Range: bytes=-100"),
        Scenario::new("range bad", "416", Body::Any, file).header("Range: bytes=2000000-"),
    ]
}

fn framing() -> Vec<Scenario> {
    let chunked = Body::Pattern(CHUNKED_SIZE);
    let upload = format!("method=POST url=@/whole body={CHUNKED_SIZE} chunked=1");
    let sink = format!("method=POST url=@/sink body={CHUNKED_SIZE} chunked=1 text=1");
    let expect = format!("method=POST url=@/sink body={EXPECT_SIZE} expect=1 text=1");
    let trailers = "method=POST url=@/trailers-up body=5 trailer=1 text=1";
    vec![
        Scenario::new("chunked", "200", chunked, "method=GET url=@/chunked"),
        Scenario::new("chunked both", "200", chunked, &upload),
        Scenario::new("chunked up", "200", Body::Digest(CHUNKED_SIZE), &sink),
        Scenario::new("expect", "200", Body::Digest(EXPECT_SIZE), &expect),
        Scenario::new(
            "trailers",
            "200",
            Body::Text("data\n"),
            "method=GET url=@/trailers text=1",
        )
        .header("TE: trailers"),
        Scenario::new("trailers up", "200", Body::Any, trailers),
    ]
}

fn crowds() -> Vec<Scenario> {
    let refused = |path: &str| format!("method=POST url=@/refuse/{path} {REFUSED} then=@/hello");
    let slow = format!("method=GET url=@/bytes/{SLOW_SIZE} slow=1");
    vec![
        Scenario::new("401", "401", Body::Any, &refused("401")).any_status(),
        Scenario::new("413", "413", Body::Any, &refused("413")).any_status(),
        Scenario::new("slow", "200", Body::Pattern(SLOW_SIZE), &slow),
        Scenario::new(
            "parallel",
            "",
            Body::Any,
            "method=GET url=@/hello repeat=1000",
        )
        .any_status()
        .within(CROWD_SECONDS),
    ]
}

/// The large bodies: down, up, and both ways at once.
pub fn large(size: u64) -> [Scenario; 3] {
    let echo = size / 5;
    let words = format!("method=POST url=@/echo body={echo} chunked=1 duplex=1");
    [
        Scenario::new(
            "down",
            "200",
            Body::Pattern(size),
            &format!("method=GET url=@/bytes/{size}"),
        )
        .large(size),
        Scenario::new(
            "up",
            "200",
            Body::Digest(size),
            &format!("method=PUT url=@/sink body={size} text=1"),
        )
        .large(size),
        Scenario::new("echo", "200", Body::Pattern(echo), &words).large(echo),
    ]
}

/// The sizes of the bodies.
pub fn sizes(size: u64) -> [u64; 8] {
    [
        0,
        5,
        EXPECT_SIZE,
        CHUNKED_SIZE,
        FILE_SIZE,
        SLOW_SIZE,
        size / 5,
        size,
    ]
}
