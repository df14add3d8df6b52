//! HTTP/2 with peers that are slow, or send more than the limits allow.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use component::forward::{ForwardPlan, ForwardTimeouts};
use component::plan::RouteTarget;
use component::settings::Settings;
use component::tls::Protocol;
use component::upstream::UpstreamPlan;
use testkit::http2::frame;
use testkit::{RawClient, wait_until};

use crate::support::{Echo, Proxy, StepCall};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const HEADERS: u8 = 1;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

/// A proxy for both versions in which only the time for heads is short.
fn echo() -> Proxy {
    let target = RouteTarget::Handle {
        handler: Arc::new(Echo { reads_body: true }),
        body_max: 100_000,
    };
    let proxy = Proxy::both(target.clone());
    let mut settings = Settings::default();
    settings.timeouts.head = Duration::from_millis(300);
    proxy.serve(target, settings, Vec::new());
    proxy
}

/// Sends the first piece, then the others slowly, until the server closes; what it has sent.
fn drip(port: u16, first: &[u8], rest: &[u8]) -> Vec<u8> {
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let wait = Some(Duration::from_millis(100));
    client.set_read_timeout(wait).unwrap();
    client.write_all(first).unwrap();
    let mut found = Vec::new();
    let mut buffer = [0; 4096];
    for byte in rest.iter().cycle().take(100) {
        match client.read(&mut buffer) {
            Ok(0) => return found,
            Ok(count) => found.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return found,
        }
        if client.write_all(&[*byte]).is_err() {
            return found;
        }
    }
    panic!("it is never cut");
}

fn kinds(mut input: &[u8]) -> Vec<u8> {
    let mut found = Vec::new();
    while input.len() >= 9 {
        let length = u32::from_be_bytes([0, input[0], input[1], input[2]]) as usize;
        found.push(input[3]);
        input = input.get(9 + length..).unwrap_or_default();
    }
    found
}

#[test]
fn clients_that_begin_and_do_not_finish_are_cut_in_time() {
    let proxy = echo();
    // The preface, the settings, a frame's header, HEADERS, and CONTINUATION without end.
    drip(proxy.port, b"PRI * H", b"T");
    drip(proxy.port, PREFACE, &[0]);
    let start = [PREFACE, SETTINGS].concat();
    let cut = [&start[..], &[0, 0]].concat();
    assert_eq!(kinds(&drip(proxy.port, &cut, &[0])).last(), Some(&GOAWAY));
    let head = [&start[..], &frame(1, 4, 1, &[0; 100])[..20]].concat();
    assert_eq!(kinds(&drip(proxy.port, &head, &[0])).last(), Some(&GOAWAY));
    let open = [&start[..], &frame(1, 0, 1, b"\x82")].concat();
    let more = frame(9, 0, 1, b"");
    assert_eq!(kinds(&drip(proxy.port, &open, &more)).last(), Some(&GOAWAY));
    proxy.wait_until_idle();
}

#[test]
fn a_slow_body_is_not_a_slow_head() {
    let proxy = echo();
    let mut client = RawClient::connect(proxy.port);
    // POST / with content-length 6.
    let head = frame(1, 4, 1, b"\x83\x86\x84\x41\x01a\x0f\x0d\x016");
    client.send([PREFACE, SETTINGS, &head].concat());
    // One frame of DATA that takes longer than the time for heads.
    client.send_slowly(&frame(0, 1, 1, b"abcdef"), 1, Duration::from_millis(60));
    client.until(b"abcdef");
}

/// A frame that a back end has received.
struct Asked {
    /// How many connections there were before.
    connection: usize,
    /// How many requests came on this one, with this one.
    request: u32,
    stream: u32,
    /// Whether it is a PING.
    is_ping: bool,
}

/// A back end that speaks HTTP/2 and answers requests and PINGs with these frames.
fn back_end(answer: impl Fn(Asked) -> Vec<u8> + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for (connection, socket) in listener.incoming().enumerate() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || answer_all(socket.unwrap(), connection, &*answer));
        }
    });
    port
}

fn answer_all(
    mut socket: TcpStream,
    connection: usize,
    answer: &dyn Fn(Asked) -> Vec<u8>,
) -> Option<()> {
    socket.write_all(SETTINGS).ok()?;
    socket.read_exact(&mut [0; PREFACE.len()]).ok()?;
    let mut request = 0;
    loop {
        let mut header = [0; 9];
        socket.read_exact(&mut header).ok()?;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        socket.read_exact(&mut vec![0; length as usize]).ok()?;
        request += u32::from(header[3] == HEADERS);
        if matches!(header[3], HEADERS | PING) {
            let asked = Asked {
                connection,
                request,
                stream: u32::from_be_bytes([header[5], header[6], header[7], header[8]]),
                is_ping: header[3] == PING,
            };
            socket.write_all(&answer(asked)).ok()?;
        }
    }
}

fn pong() -> Vec<u8> {
    frame(PING, 1, 0, b"suspect?")
}

/// A reply with the number of the connection as its body.
fn reply(asked: &Asked) -> Vec<u8> {
    let body = asked.connection.to_string();
    let head = frame(HEADERS, 4, asked.stream, b"\x88");
    [head, frame(0, 1, asked.stream, body.as_bytes())].concat()
}

fn plan_to(port: u16) -> ForwardPlan {
    let mut upstream = UpstreamPlan::single("127.0.0.1", port, None);
    upstream.protocols = vec![Protocol::Http2];
    ForwardPlan {
        timeouts: ForwardTimeouts {
            response: Some(Duration::from_millis(300)),
            ..ForwardTimeouts::default()
        },
        ..ForwardPlan::new(Arc::new(upstream), "/")
    }
}

fn proxy_to(port: u16) -> Proxy {
    Proxy::forward(1, |plan| *plan = plan_to(port), |_| {})
}

fn post(client: &mut RawClient) -> testkit::Response {
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    client.response()
}

#[test]
fn after_one_slow_reply_a_silent_connection_is_left_and_a_live_one_is_kept() {
    for is_silent in [true, false] {
        for calls in [false, true] {
            let port = back_end(move |asked| match (asked.connection, asked.is_ping) {
                (0, true) if is_silent => Vec::new(),
                (_, true) => pong(),
                (0, false) if is_silent || asked.request == 1 => Vec::new(),
                (_, false) => reply(&asked),
            });
            let proxy = match calls {
                true => Proxy::handle(StepCall::new(Arc::new(plan_to(port)))),
                false => proxy_to(port),
            };
            let mut client = proxy.client();
            assert_eq!(post(&mut client).status, 504);
            // Nobody waits for the connection while it is suspected.
            let second = post(&mut client);
            assert_eq!(second.status, 200);
            if is_silent {
                assert_eq!(second.text(), "1");
            } else {
                wait_until("it is used again", || post(&mut client).text() == "0");
            }
        }
    }
}

/// Who gives up before the back end's own time is over.
#[derive(Clone, Copy, Debug)]
enum Impatient {
    Step,
    Route,
    Client,
}

#[test]
fn a_silent_connection_is_left_however_early_requests_are_given_up_and_a_live_one_is_kept() {
    for impatient in [Impatient::Step, Impatient::Route, Impatient::Client] {
        for is_silent in [true, false] {
            let port = back_end(move |asked| match (asked.connection, asked.is_ping) {
                (0, true) if is_silent => Vec::new(),
                (_, true) => pong(),
                (0, false) if is_silent || asked.request == 1 => Vec::new(),
                (_, false) => reply(&asked),
            });
            let time = Duration::from_millis(300);
            let plan = move |plan: &mut ForwardPlan| {
                *plan = plan_to(port);
                plan.timeouts.response = None;
                plan.timeouts.total = matches!(impatient, Impatient::Route).then_some(time);
            };
            let proxy = match impatient {
                Impatient::Step => {
                    let mut forward = plan_to(port);
                    plan(&mut forward);
                    let calling = StepCall::new(Arc::new(forward));
                    Proxy::handle(calling.giving_up_after(Some(time)))
                }
                _ => Proxy::forward(1, plan, |_| {}),
            };
            let try_once = || {
                let mut client = proxy.client();
                client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
                match impatient {
                    Impatient::Client => (!client.stays_silent(time)).then(|| client.response()),
                    _ => Some(client.response()),
                }
            };
            let status = try_once().map_or(504, |it| it.status);
            assert_eq!(status, 504, "{impatient:?}");
            let expected = if is_silent { "1" } else { "0" };
            wait_until("a connection that answers is used", || {
                try_once().is_some_and(|it| it.status == 200 && it.text() == expected)
            });
        }
    }
}

#[test]
fn a_reply_with_too_many_fields_is_502_and_harms_no_other() {
    let fields = |status: &[u8], count| [status, &b"\x00\x01x\x01y".repeat(count)].concat();
    let port = back_end(move |Asked { stream, .. }| match stream % 6 {
        1 => frame(1, 5, stream, &fields(b"\x88", 131)),
        3 => frame(1, 4, stream, &fields(b"\x08\x03103", 131)),
        _ => frame(1, 5, stream, &fields(b"\x88", 90)),
    });
    let proxy = proxy_to(port);
    let mut client = proxy.client();
    for _ in 0..50 {
        for status in [502, 502, 200] {
            assert_eq!(post(&mut client).status, status);
        }
    }
}

#[test]
fn a_reply_that_switches_protocols_is_502() {
    let port = back_end(|it| frame(1, 4, it.stream, b"\x08\x03101"));
    let proxy = proxy_to(port);
    let mut client = proxy.client();
    assert_eq!(post(&mut client).status, 502);
}
