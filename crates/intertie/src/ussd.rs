//! `intertie ussd`: a phone in the terminal, to try a menu with. It starts an engine of its own, or
//! speaks to one that runs, and sends it what a gateway would, in a format of its own that every
//! gateway's trigger takes.

mod engine;
mod phone;

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use component::dialogue::{SessionEvent, SessionInput};
use component::state::States;

use crate::load::{self, Purpose};
use crate::named_files::NamedFiles;
use crate::tls::LoadedTls;
use engine::{Engine, Place};
use phone::Phone;

/// Arguments of `intertie ussd`.
#[derive(Debug, clap::Args)]
pub(crate) struct UssdArguments {
    /// Files, and folders whose *.yaml and *.yml files are meant, subfolders included.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// The menu, when the files have several.
    #[arg(long, value_name = "NAME")]
    menu: Option<String>,
    /// What is dialled; the first of the menu's codes without parameters when not given.
    #[arg(long, value_name = "CODE")]
    dial: Option<String>,
    /// A reply, in the order of the option's places: for scripts. Without any, replies are read
    /// line by line.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    reply: Vec<String>,
    /// The number of the subscriber, in E.164 form.
    #[arg(long, value_name = "NUMBER", default_value = "+15550100")]
    msisdn: String,
    /// A running engine that serves these files, such as `http://127.0.0.1:8080`, in place of one
    /// that is started for this.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// A header line for the engine, such as `Authorization: Bearer …`, for a menu with `auth`.
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,
}

/// Where what is typed comes from.
enum Input {
    /// The replies of the command line.
    Given(std::vec::IntoIter<String>),
    /// Lines, with a prompt on a terminal.
    Lines { has_prompt: bool },
}

impl Input {
    /// The next line; `None` at the end.
    fn next(&mut self) -> anyhow::Result<Option<String>> {
        let has_prompt = match self {
            Self::Given(replies) => return Ok(replies.next()),
            Self::Lines { has_prompt } => *has_prompt,
        };
        if has_prompt {
            print!("> ");
            io::stdout().flush()?;
        }
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line)?;
        Ok((read > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned()))
    }
}

/// Holds a dialogue with a menu. The exit code is 1 when the input ends before the session, or the
/// session before the input.
///
/// # Errors
/// When there is no such menu, or nobody answers.
pub(crate) fn run(arguments: UssdArguments) -> anyhow::Result<ExitCode> {
    let Some(menu) = find(&arguments)? else {
        return Ok(ExitCode::FAILURE);
    };
    let has_screen = io::stdout().is_terminal() && arguments.reply.is_empty();
    let input = match arguments.reply.is_empty() {
        true => Input::Lines {
            has_prompt: has_screen && io::stdin().is_terminal(),
        },
        false => Input::Given(arguments.reply.clone().into_iter()),
    };
    let place = Place::new(&menu.address, &menu.path, &arguments.header);
    let engine = match &arguments.url {
        Some(url) => Engine::running(place.at(url)?),
        None => Engine::start(&arguments.paths, place)?,
    };
    let dial = arguments.dial.clone().or(menu.code);
    let dial =
        dial.context("every code of the menu has parameters: say what is dialled (--dial)")?;
    let mut session = Session {
        engine,
        msisdn: arguments.msisdn,
        phone: Phone::new(has_screen, menu.limit),
        id: String::new(),
        count: 0,
        sequence: 0,
        last: None,
    };
    session.hold(dial, input)
}

/// A menu of the files.
struct Menu {
    address: String,
    path: String,
    /// The first code without parameters.
    code: Option<String>,
    limit: usize,
}

/// The menu that is meant; `None` when the files have problems, which have been printed.
fn find(arguments: &UssdArguments) -> anyhow::Result<Option<Menu>> {
    let files = load::read(&arguments.paths)?;
    let states = States::default();
    let noted = (&states, &NamedFiles::default());
    let (loaded, problems) = load::load(&files, Purpose::Check, &LoadedTls::default(), noted);
    if !problems.is_empty() {
        eprint!("{}", problems.text(io::stderr().is_terminal()));
    }
    let Some(loaded) = loaded else {
        return Ok(None);
    };
    let parsed = load::parse(&files);
    let menus = parsed.documents.iter().filter_map(|document| {
        let name = document.get("menu")?.as_str()?;
        Some((name, document.get("from")?.get("ussd")?))
    });
    let menus: Vec<_> = menus.collect();
    let names: Vec<&str> = menus.iter().map(|(name, _)| *name).collect();
    let wanted = arguments.menu.as_deref();
    let (name, ussd) = match (menus.as_slice(), wanted) {
        ([], _) => bail!("the files have no menu"),
        ([one], None) => *one,
        (_, None) => bail!("choose a menu with --menu: {}", names.join(", ")),
        (all, Some(wanted)) => {
            let found = all.iter().find(|(name, _)| *name == wanted);
            let missing = || format!("there is no menu `{wanted}`, but {}", names.join(", "));
            *found.with_context(missing)?
        }
    };
    for listener in &loaded.flows.plan.listeners {
        let Some(route) = listener.routes.iter().find(|it| &*it.flow == name) else {
            continue;
        };
        if listener.tls.is_some() && arguments.url.is_none() {
            bail!("the menu's listener has TLS: run the engine, and name it with --url");
        }
        let codes = ussd.get("codes").and_then(config::Node::as_mapping);
        let mut codes = codes.unwrap_or_default().iter().map(|it| it.key.clone());
        let limit = ussd.get("limit").and_then(|limit| match &limit.value {
            config::Value::Number(number) => number.as_i64(),
            _ => None,
        });
        return Ok(Some(Menu {
            address: listener.address.to_string(),
            path: route.path.to_string(),
            code: codes.find(|code| !code.contains('{')),
            limit: limit.map_or(menu::text::SEPTETS_MAX, |it| it as usize),
        }));
    }
    bail!("no listener has the menu `{name}`")
}

/// A subscriber at the phone.
struct Session {
    engine: Engine,
    msisdn: String,
    phone: Phone,
    /// The gateway's id of the session.
    id: String,
    /// How many sessions there were.
    count: u32,
    /// The number of the last request, and what it told.
    sequence: u64,
    last: Option<SessionEvent>,
}

impl Session {
    /// Dials, and replies with what is read until the session ends.
    fn hold(&mut self, dial: String, mut input: Input) -> anyhow::Result<ExitCode> {
        let mut has_ended = self.dial(&dial)?;
        loop {
            let is_script = !self.phone.is_interactive();
            if has_ended && !is_script {
                self.phone
                    .say("the session has ended; Enter dials again, :quit leaves");
            }
            let Some(line) = input.next()? else {
                if has_ended {
                    return Ok(ExitCode::SUCCESS);
                }
                eprintln!("the input has ended before the session");
                return Ok(ExitCode::FAILURE);
            };
            if has_ended && is_script && !line.starts_with(':') {
                if line.trim().is_empty() {
                    continue;
                }
                eprintln!("the session has ended before all replies were typed");
                return Ok(ExitCode::FAILURE);
            }
            has_ended = match line.split_once(' ').unwrap_or((&line, "")) {
                (":quit" | ":q", _) => return Ok(ExitCode::SUCCESS),
                (":dial", "") => self.dial(&dial)?,
                (":dial", code) => self.dial(code)?,
                (":drop", _) => self.drop()?,
                (":repeat", _) => match self.last.clone() {
                    Some(event) => self.send(event)?,
                    None => has_ended,
                },
                (":help", _) => {
                    self.phone.say(
                        ":dial [CODE] a new session, :drop the network ends this one, :repeat the \
                         last request once more, :quit",
                    );
                    has_ended
                }
                _ if has_ended => self.dial(&dial)?,
                _ => self.reply(&line)?,
            };
        }
    }

    fn dial(&mut self, code: &str) -> anyhow::Result<bool> {
        self.count += 1;
        self.sequence = 1;
        self.id = format!("{}-{}", std::process::id(), self.count);
        self.phone.typed(code);
        self.send(SessionEvent::Dial(code.to_owned()))
    }

    fn reply(&mut self, text: &str) -> anyhow::Result<bool> {
        self.sequence += 1;
        self.phone.typed(text);
        self.send(SessionEvent::Reply {
            text: text.to_owned(),
            sequence: Some(self.sequence),
        })
    }

    /// The network ends the session.
    fn drop(&mut self) -> anyhow::Result<bool> {
        self.engine.ask(&self.input(SessionEvent::End))?;
        self.phone.say("the network has ended the session");
        eprint!("{}", self.engine.warnings());
        Ok(true)
    }

    fn input(&self, event: SessionEvent) -> SessionInput {
        SessionInput {
            session: self.id.clone(),
            msisdn: self.msisdn.clone(),
            event,
        }
    }

    /// Whether the session has ended.
    fn send(&mut self, event: SessionEvent) -> anyhow::Result<bool> {
        let screen = self.engine.ask(&self.input(event.clone()))?;
        self.last = Some(event);
        self.phone.show(&screen)?;
        eprint!("{}", self.engine.warnings());
        Ok(screen.ends)
    }
}
