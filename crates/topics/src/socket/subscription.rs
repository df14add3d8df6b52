//! One topic of a WebSocket connection.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use component::access::Caller;
use component::handler::{LocalFuture, Services};
use message::{Fault, Request};
use net::websocket::Deflate;

use crate::access;
use crate::ask::Ask;
use crate::branch::Branch;
use crate::caller_limits::{self, Subscriber};
use crate::channel::{ChannelKey, StreamEnd};
use crate::counts::Place;
use crate::endpoint::Endpoint;
use crate::frame::{IdForm, Wire};
use crate::join::{Joining, Start, Step};
use crate::reader::{ReadEnd, Reader};
use crate::seats::Outlet;
use crate::sse;
use crate::view::View;

/// What a client wants to have of a topic.
#[derive(Debug)]
pub(super) struct Wish {
    pub ask: Ask,
    /// How many events it may get that it has not acknowledged.
    pub window: Option<u64>,
}

/// How a client subscribes.
pub(super) struct Way<'a> {
    pub deflate: Option<Deflate>,
    /// The head of the request that has opened the connection, where topics have limits.
    pub request: Option<&'a Request>,
    pub services: &'a dyn Services,
}

/// A topic of which a client gets events, or is about to.
pub(super) struct Subscription {
    branch: Rc<Branch>,
    reader: Reader,
    state: State,
    /// How many events it may get that it has not acknowledged.
    window: Option<u64>,
    /// The last event that it has acknowledged.
    acknowledged: Option<u64>,
    /// Whether its time is the one that the caller's plan allows.
    pub ends_by_plan: bool,
    _place: Place,
}

/// How far a subscription is.
enum State {
    /// What comes next is being found out.
    Finding(LocalFuture<'static, (Joining, Result<Step, StreamEnd>)>),
    /// Something of its own is being written.
    Writing(Box<Joining>),
    /// It may have nothing more before it acknowledges something.
    Full(Box<Joining>),
    /// It reads from the ring.
    Live,
}

impl Wish {
    fn window(&self, endpoint: &Endpoint) -> Result<Option<u64>, Fault> {
        self.ask.mode(endpoint)?;
        let usual = endpoint.settings.websocket.and_then(|it| it.window);
        let window = self.window.or(usual);
        if window.is_some() && self.ask.filter.is_some() {
            let detail = "`filter` does not go with a `window`: what it leaves out cannot be \
                          acknowledged";
            return Err(Fault::invalid(detail));
        }
        if window.is_some() && endpoint.access.only.is_some() {
            let detail = "the topic is not the same for all callers: events cannot be \
                          acknowledged by a `window`";
            return Err(Fault::invalid(detail));
        }
        Ok(window)
    }

    async fn view(
        &self,
        (endpoint, caller): (&Arc<Endpoint>, &Option<Arc<Caller>>),
        branch: &Rc<Branch>,
    ) -> Result<View, Fault> {
        let one = [Arc::clone(endpoint)];
        let callers = std::slice::from_ref(caller);
        let how = (Wire::WebSocket(None), IdForm::Plain);
        let branches = [Rc::clone(branch)];
        let views = self.ask.views((&one, callers), &branches, how).await;
        let missing = || Fault::invalid("the topic is not there");
        views?.pop().ok_or_else(missing)
    }

    async fn starts(
        &self,
        endpoint: &Arc<Endpoint>,
        services: &dyn Services,
    ) -> Result<(Rc<Branch>, Vec<Start>), Fault> {
        let one = [Arc::clone(endpoint)];
        let mut branches = sse::ready(&one, services).await?;
        let missing = || Fault::invalid("the topic is not there");
        let branch = branches.pop().ok_or_else(missing)?;
        let starts = self.ask.starts(&one, IdForm::Plain)?;
        Ok((branch, starts))
    }

    /// Says what is wrong with it.
    ///
    /// # Errors
    /// That.
    pub async fn check(
        &self,
        (endpoint, caller): (&Arc<Endpoint>, &Option<Arc<Caller>>),
        services: &dyn Services,
    ) -> Result<(), Fault> {
        self.window(endpoint)?;
        let (branch, _) = self.starts(endpoint, services).await?;
        let _place = sse::enter(&[Arc::clone(endpoint)])?;
        self.view((endpoint, caller), &branch).await.map(drop)
    }

    /// Makes a subscription of it.
    ///
    /// # Errors
    /// What is wrong with it, or that there are too many.
    pub async fn subscribe(
        &self,
        (endpoint, caller): (&Arc<Endpoint>, &Option<Arc<Caller>>),
        mut subscriber: Subscriber,
        way: Way<'_>,
    ) -> Result<Subscription, Fault> {
        let Way {
            deflate,
            request,
            services,
        } = way;
        let window = self.window(endpoint)?;
        let one = [Arc::clone(endpoint)];
        if let Some(request) = request {
            let request = caller_limits::seen(request, caller.as_ref());
            subscriber.add(endpoint, &request, services).await?;
        }
        let mut place = sse::enter(&one)?.pop();
        if let Some(place) = &mut place {
            place.hold(subscriber.held);
        }
        let (branch, starts) = self.starts(endpoint, services).await?;
        let view = self.view((endpoint, caller), &branch).await?;
        let deflate = deflate.filter(|_| endpoint.settings.compression);
        let key = ChannelKey {
            wire: Wire::WebSocket(deflate),
            ids: IdForm::Plain,
            views: vec![view],
        };
        let pace = endpoint.settings.pace;
        let channel = Branch::channel(&[Rc::clone(&branch)], key, pace);
        let (Some(channel), Some(place)) = (channel, place) else {
            return Err(sse::busy("too many different expressions of subscribers"));
        };
        let joining = Joining::new(&channel, starts, Vec::new()).with_window(window);
        let mut max_time = endpoint.settings.max_time;
        let longest = subscriber.stream_time;
        let ends_by_plan = longest.is_some_and(|it| max_time.is_none_or(|most| it < most));
        if ends_by_plan {
            max_time = longest;
        }
        let ticks = max_time.map(|time| sse::in_ticks(time, services.random()));
        let reader = Reader::new(&channel, ticks);
        reader.hold_to(access::validity(std::slice::from_ref(caller)));
        Ok(Subscription {
            branch,
            reader,
            state: State::find(Box::new(joining)),
            window,
            acknowledged: None,
            ends_by_plan,
            _place: place,
        })
    }
}

impl State {
    fn find(mut joining: Box<Joining>) -> Self {
        Self::Finding(Box::pin(async move {
            let step = joining.advance().await;
            (*joining, step)
        }))
    }
}

impl Subscription {
    /// The topic's branch.
    pub fn branch(&self) -> &Rc<Branch> {
        &self.branch
    }

    /// Notes that the client has this event and all before it.
    pub fn acknowledge(&mut self, sequence: u64) {
        let Some(window) = self.window else {
            return;
        };
        self.acknowledged = self.acknowledged.max(Some(sequence));
        self.reader.open_window(sequence.saturating_add(window));
        self.state = match std::mem::replace(&mut self.state, State::Live) {
            State::Full(mut joining) => {
                joining.acknowledge(sequence);
                State::find(joining)
            }
            State::Writing(mut joining) => {
                joining.acknowledge(sequence);
                State::Writing(joining)
            }
            other => other,
        };
    }

    /// Writes what there is. Ready with a reason to end the connection.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn poll(
        &mut self,
        outlet: &mut impl Outlet,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<StreamEnd>> {
        loop {
            match &mut self.state {
                State::Finding(finding) => {
                    if let Poll::Ready(end) = self.reader.poll_end(context) {
                        return Poll::Ready(Ok(end));
                    }
                    let Poll::Ready((mut joining, step)) = finding.as_mut().poll(context) else {
                        return Poll::Pending;
                    };
                    if let Some(sequence) = self.acknowledged {
                        joining.acknowledge(sequence);
                    }
                    match step {
                        Err(end) => return Poll::Ready(Ok(end)),
                        Ok(step) => self.take(Box::new(joining), step),
                    }
                }
                State::Writing(_) => {
                    let Poll::Ready(done) = self.reader.poll_write_own(outlet, context)? else {
                        return Poll::Pending;
                    };
                    if let Some(end) = done {
                        return Poll::Ready(Ok(end));
                    }
                    if let State::Writing(joining) = std::mem::replace(&mut self.state, State::Live)
                    {
                        self.state = State::find(joining);
                    }
                }
                State::Full(_) => {
                    return match self.reader.end() {
                        Some(end) => Poll::Ready(Ok(end)),
                        None => Poll::Pending,
                    };
                }
                State::Live => match self.reader.poll_read(outlet, context) {
                    Poll::Ready(Ok(ReadEnd::Behind(lost))) => self.reader.skip(lost),
                    Poll::Ready(Ok(ReadEnd::End(end))) => return Poll::Ready(Ok(end)),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    }

    fn take(&mut self, joining: Box<Joining>, step: Step) {
        self.state = match step {
            Step::Write(piece) => {
                self.reader.put_own(piece);
                State::Writing(joining)
            }
            Step::Join(own, at) => {
                self.reader.join(own, at);
                if let Some(most) = joining.most() {
                    self.reader.open_window(most);
                }
                State::Live
            }
            Step::Full if joining.may_go_on() => State::find(joining),
            Step::Full => State::Full(joining),
        };
    }
}
