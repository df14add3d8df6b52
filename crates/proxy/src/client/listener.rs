//! The addresses that a worker listens on, and what is served there.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Poll, Waker};

use component::settings::Settings;
use component::trigger::ListenAddress;
use net::tls;
use tokio::net::{TcpListener, TcpStream};

use crate::client::entry::Entry;
use crate::router::Table;

/// Accepts the connections of one address. Its socket stays open through reloads.
pub(crate) struct Acceptor {
    /// The address as flows write it.
    pub address: ListenAddress,
    /// Takes the connections that are accepted from now on.
    listener: RefCell<Rc<Listener>>,
    closed: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// What the connections of an address have in common. A reload changes its routes; one that changes
/// what is asked of clients (TLS, client certificates) replaces it, since a connection that was
/// accepted before has not shown what is asked for now.
pub(crate) struct Listener {
    service: RefCell<Service>,
    closed: Cell<bool>,
}

/// What a listener offers its clients.
pub(crate) struct Service {
    pub table: Rc<Table>,
    pub tls: Option<tls::Server>,
    pub takes_h2: bool,
    pub takes_h1: bool,
    /// The engine's settings as they are here.
    pub settings: Rc<Settings>,
    /// What is asked of a connection before anything else.
    pub entry: Option<Rc<Entry>>,
}

impl Service {
    /// Whether the other one asks the same of clients before it serves them.
    fn admits_like(&self, other: &Self) -> bool {
        if self.entry != other.entry {
            return false;
        }
        match (&self.tls, &other.tls) {
            (None, None) => true,
            (Some(ours), Some(theirs)) => ours.admits_like(theirs),
            (None, Some(_)) | (Some(_), None) => false,
        }
    }
}

impl Acceptor {
    pub fn new(address: ListenAddress, service: Service) -> Self {
        Self {
            address,
            listener: RefCell::new(Listener::new(service)),
            closed: Cell::new(false),
            waker: RefCell::default(),
        }
    }

    /// Serves this from now on. Connections that were accepted under other conditions end when what
    /// is under way on them has ended, if the caller wakes them.
    pub fn serve(&self, service: Service) {
        let mut listener = self.listener.borrow_mut();
        if listener.service.borrow().admits_like(&service) {
            *listener.service.borrow_mut() = service;
            return;
        }
        listener.closed.set(true);
        *listener = Listener::new(service);
    }

    /// The next connection; none when the address is closed and the kernel has no more.
    pub async fn accept(
        &self,
        socket: &TcpListener,
    ) -> Option<io::Result<(TcpStream, SocketAddr)>> {
        poll_fn(|context| match socket.poll_accept(context) {
            Poll::Ready(accepted) => Poll::Ready(Some(accepted)),
            Poll::Pending if self.closed.get() => Poll::Ready(None),
            Poll::Pending => {
                *self.waker.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    /// Takes the connections that are accepted now.
    pub fn listener(&self) -> Rc<Listener> {
        Rc::clone(&self.listener.borrow())
    }

    /// Stops accepting, and closes the listener.
    pub fn close(&self) {
        self.closed.set(true);
        self.listener.borrow().closed.set(true);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

impl Listener {
    fn new(service: Service) -> Rc<Self> {
        Rc::new(Self {
            service: RefCell::new(service),
            closed: Cell::new(false),
        })
    }

    /// The routes that hold now.
    #[inline]
    pub fn table(&self) -> Rc<Table> {
        Rc::clone(&self.service.borrow().table)
    }

    /// The settings that hold now.
    #[inline]
    pub fn settings(&self) -> Rc<Settings> {
        Rc::clone(&self.service.borrow().settings)
    }

    /// What it asks of a connection before anything else.
    pub fn entry(&self) -> Option<Rc<Entry>> {
        self.service.borrow().entry.clone()
    }

    /// The TLS that it speaks, when it does.
    pub fn tls(&self) -> Option<tls::Server> {
        self.service.borrow().tls.clone()
    }

    /// Whether it takes HTTP/1.1, and HTTP/2.
    pub fn takes(&self) -> (bool, bool) {
        let service = self.service.borrow();
        (service.takes_h1, service.takes_h2)
    }

    /// Whether its connections must end when what is under way on them has ended: the address is no
    /// longer served, or asks more of its clients.
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }
}
