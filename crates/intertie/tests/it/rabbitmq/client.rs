//! A client of a broker for tests: it waits for every answer.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use amqp::write::{self, Consumer, Queue, Target};
use amqp::{Event, Handshake, Login, Message, Method, Progress, Properties, Receiver, Table};

/// The longest that a test waits for the broker, on a machine where others work.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection with one channel, whose messages are confirmed.
pub struct Client {
    stream: TcpStream,
    receiver: Receiver,
    input: Vec<u8>,
    out: Vec<u8>,
    frame_max: u32,
    /// Messages that have come for the consumer.
    inbox: Vec<Message>,
}

/// What a queue is declared with.
pub type Arguments<'a> = &'a [(&'a str, amqp::Value)];

impl Client {
    pub fn connect(port: u16, vhost: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let mut out = Vec::new();
        let login = Login {
            user: Some(("guest".into(), "guest".into())),
            vhost: vhost.into(),
            name: "test".into(),
            product: ("test", "0"),
            heartbeat: 600,
            frame_max: 131_072,
        };
        let mut handshake = Handshake::new(login, &mut out);
        let mut client = Self {
            stream,
            receiver: Receiver::new(131_072, 1 << 30),
            input: Vec::new(),
            out,
            frame_max: 131_072,
            inbox: Vec::new(),
        };
        loop {
            let mut progress = Progress::Waits;
            client.until("the handshake", |event, out| match event {
                Event::Method(0, method) => {
                    progress = handshake.take(method, out).unwrap();
                    true
                }
                _ => false,
            });
            match progress {
                Progress::Waits => {}
                Progress::Open(tuned) => {
                    client.frame_max = tuned.frame_max;
                    break;
                }
                refused => panic!("{refused:?}"),
            }
        }
        write::channel_open(&mut client.out, 1);
        client.until_method("the channel", |it| matches!(it, Method::ChannelOpenOk));
        write::confirm_select(&mut client.out, 1);
        client.until_method("confirms", |it| matches!(it, Method::ConfirmSelectOk));
        client
    }

    /// Sends what waits and takes in events until one is the right one.
    fn until(&mut self, what: &str, mut is_it: impl FnMut(&Event<'_>, &mut Vec<u8>) -> bool) {
        let is_done = self.until_or(PATIENCE, &mut is_it);
        assert!(is_done, "waited in vain for {what}");
    }

    fn until_or(
        &mut self,
        time: Duration,
        is_it: &mut dyn FnMut(&Event<'_>, &mut Vec<u8>) -> bool,
    ) -> bool {
        let start = Instant::now();
        loop {
            self.stream.write_all(&self.out).unwrap();
            self.out.clear();
            while let Some((event, count)) = self.receiver.next(&self.input).unwrap() {
                if let Event::Message(_, message) = &event {
                    self.inbox.push(message.clone());
                }
                if let Event::Method(_, Method::ChannelClose(it) | Method::ConnectionClose(it)) =
                    &event
                {
                    panic!("{} {}", it.code, String::from_utf8_lossy(it.text));
                }
                let is_it = is_it(&event, &mut self.out);
                self.input.drain(..count);
                if is_it {
                    self.stream.write_all(&self.out).unwrap();
                    self.out.clear();
                    return true;
                }
            }
            if start.elapsed() > time {
                return false;
            }
            let mut bytes = [0; 65_536];
            match self.stream.read(&mut bytes) {
                Ok(0) => panic!("the broker has closed the connection"),
                Ok(count) => self.input.extend_from_slice(&bytes[..count]),
                Err(_) => {}
            }
        }
    }

    fn until_method(&mut self, what: &str, is_it: impl Fn(&Method<'_>) -> bool) {
        self.until(what, |event, _| match event {
            Event::Method(1, method) => is_it(method),
            _ => false,
        });
    }

    pub fn declare_queue(&mut self, name: &str, arguments: Arguments<'_>) {
        let mut table = Table::default();
        for (name, value) in arguments {
            table.set(name, value.clone());
        }
        let queue = Queue {
            name,
            durable: true,
            exclusive: false,
            auto_delete: false,
            arguments: &table,
        };
        write::queue_declare(&mut self.out, 1, &queue).unwrap();
        self.until_method("the queue", |it| matches!(it, Method::QueueDeclareOk(_)));
    }

    pub fn delete_queue(&mut self, name: &str) {
        write::queue_delete(&mut self.out, 1, name).unwrap();
        self.until_method("the end", |it| matches!(it, Method::QueueDeleteOk));
    }

    /// Puts a message into a queue; it is there when this returns.
    pub fn publish(&mut self, queue: &str, properties: &Properties<'_>, body: &[u8]) {
        self.push(queue, properties, body);
        self.until_method("the confirmation", |it| {
            matches!(it, Method::BasicAck { .. })
        });
    }

    /// The same without waiting for the confirmation.
    pub fn push(&mut self, queue: &str, properties: &Properties<'_>, body: &[u8]) {
        let mut bytes = Vec::new();
        properties.write(&mut bytes).unwrap();
        let target = Target {
            exchange: "",
            key: queue,
            mandatory: false,
        };
        let channel = (1, self.frame_max);
        write::basic_publish(&mut self.out, channel, &target, &bytes, body).unwrap();
    }

    pub fn publish_json(&mut self, queue: &str, body: &str) {
        self.publish(queue, &json(), body.as_bytes());
    }

    /// Starts to consume; the broker forgets what it sends.
    pub fn consume(&mut self, queue: &str) {
        let consumer = Consumer {
            queue,
            name: queue,
            no_ack: true,
            exclusive: false,
        };
        write::basic_consume(&mut self.out, 1, &consumer).unwrap();
        self.until_method("the consumer", |it| matches!(it, Method::BasicConsumeOk(_)));
    }

    /// The next messages of the queues that are consumed, so many of them.
    pub fn take(&mut self, count: usize) -> Vec<Message> {
        let start = Instant::now();
        while self.inbox.len() < count {
            let left = PATIENCE.checked_sub(start.elapsed());
            let left = left.unwrap_or_else(|| {
                panic!("{} of {count} messages came", self.inbox.len());
            });
            self.until_or(left, &mut |event, _| matches!(event, Event::Message(..)));
        }
        self.inbox.drain(..count).collect()
    }

    /// All messages that come until none has come for a while.
    pub fn take_all(&mut self) -> Vec<Message> {
        let quiet = Duration::from_millis(700);
        while self.until_or(quiet, &mut |event, _| matches!(event, Event::Message(..))) {}
        std::mem::take(&mut self.inbox)
    }
}

/// The properties of a JSON text.
pub fn json() -> Properties<'static> {
    Properties {
        content_type: Some(b"application/json"),
        delivery_mode: Some(2),
        ..Properties::default()
    }
}
