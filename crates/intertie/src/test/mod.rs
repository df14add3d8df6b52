//! `intertie test`: runs the tests of flow files, with other systems mocked and a clock of its own.
//! No address is looked up, no socket opened and no file written.
//!
//! `suite` loads the files and runs one test: `executor` is what runs it, `services` what the flow
//! is offered, `mock` and `seen` what stands in for other systems and what they get. `expect` tells
//! what is not as expected by means of `diff`; `coverage`, `report` and `junit` make something to
//! read of it.

mod coverage;
mod diff;
mod executor;
mod expect;
mod junit;
mod mock;
mod report;
mod seen;
mod services;
mod suite;

use std::cell::RefCell;
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use anyhow::Context;

use crate::load;
use crate::machine;
use crate::named_files::NamedFiles;
use crate::watch::Watcher;
use coverage::Coverage;
use report::Style;
use suite::{CaseResult, Suite};

/// Arguments of `intertie test`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TestArguments {
    /// Files, and folders whose *.yaml and *.yml files are meant, subfolders included.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Only tests in whose name, or whose flow's name, this text stands.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// List the steps and branches that no test reaches.
    #[arg(long)]
    coverage: bool,
    /// Write the results as JUnit XML too.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Run the tests again when a file changes.
    #[arg(long)]
    watch: bool,
    /// It is no failure when there is no test.
    #[arg(long)]
    allow_empty: bool,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
}

/// Runs the tests. The exit code is 1 when one fails, when there is a problem with the files, or
/// when there is no test.
///
/// # Errors
/// When files cannot be read or results not be written.
pub(crate) fn run(arguments: TestArguments) -> anyhow::Result<ExitCode> {
    let stack = machine::stack(1);
    let tests = thread::Builder::new()
        .name("tests".to_owned())
        .stack_size(stack)
        .spawn(move || {
            expr::jq::set_stack(stack / 4 * 3);
            match arguments.watch {
                true => watch(&arguments),
                false => run_all(&arguments, &NamedFiles::default()),
            }
        })
        .with_context(|| machine::no_thread(stack))?;
    let is_sound = tests
        .join()
        .map_err(|_| anyhow::anyhow!("the tests have panicked"))??;
    Ok(match is_sound {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Runs the tests again and again, until the process is told to stop.
fn watch(arguments: &TestArguments) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let mut watcher = Some(Watcher::new(&arguments.paths)?);
    loop {
        // A file that is just being written may be missing: it will be there at the next change.
        let named = NamedFiles::default();
        if let Err(error) = run_all(arguments, &named) {
            eprintln!("intertie: {error:#}");
        }
        if let Some(watcher) = &mut watcher {
            watcher.add(named.folders());
        }
        eprintln!("waiting for a change");
        runtime.block_on(Watcher::changed(&mut watcher));
    }
}

/// Runs the tests once; whether nothing failed.
fn run_all(arguments: &TestArguments, named: &NamedFiles) -> anyhow::Result<bool> {
    let files = load::read_with_tests(&arguments.paths)?;
    let style = Style {
        color: std::io::stdout().is_terminal(),
    };
    let suite = match Suite::open(&files, named) {
        Ok(suite) => suite,
        Err(problems) if arguments.format == Format::Json => {
            print(&problems.json())?;
            return Ok(false);
        }
        Err(problems) => {
            print(&problems.text(style.color))?;
            return Ok(false);
        }
    };
    let coverage = RefCell::new(Coverage::of(&suite.loaded.flows));
    let mut results = Vec::new();
    for (flow, case) in suite.cases() {
        let filter = arguments.filter.as_deref().unwrap_or_default();
        if !case.name.contains(filter) && !flow.name.contains(filter) {
            continue;
        }
        let result = suite.run(flow, case, &coverage);
        print(&match arguments.format {
            Format::Text => report::case(&result, &suite.sources, style),
            Format::Json => report::json_case(&result, &suite.sources),
        })?;
        results.push(result);
    }
    finish(arguments, &suite, (&results, &coverage.borrow()), style)
}

/// Prints what there is to say of all tests together; whether nothing failed.
fn finish(
    arguments: &TestArguments,
    suite: &Suite,
    (results, coverage): (&[CaseResult], &Coverage),
    style: Style,
) -> anyhow::Result<bool> {
    if arguments.coverage && arguments.format == Format::Text {
        print(&report::missed(coverage, &suite.sources))?;
    }
    print(&match arguments.format {
        Format::Text => report::summary(results, coverage, style),
        Format::Json => report::json_summary(results, coverage),
    })?;
    if let Some(path) = &arguments.junit {
        let document = junit::document(results, &suite.sources);
        fs::write(path, document).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if results.is_empty() && !arguments.allow_empty {
        eprintln!(
            "intertie: there is no test to run; write some under `tests:`, or say --allow-empty"
        );
        return Ok(false);
    }
    Ok(results.iter().all(|result| result.failures.is_empty()))
}

/// Prints to stdout. A reader that has read enough is no error.
fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot print"),
    }
}
