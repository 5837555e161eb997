//! What an operator can get wrong: the program says on one line what it is and what to do, ends
//! with an error, and leaves a copy as it is.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use heliostat_core::log::config::LogConfig;
use heliostat_core::types::BrokerId;
use heliostat_io::generate::{DemoSpec, generate};
use heliostat_io::listener::hosted::{Catalog, CatalogConfig};
use heliostat_io::listener::{Listener, ListenerConfig};
use tempfile::TempDir;

use super::error::{Result, ScenarioError, ensure};
use super::figures::Figures;
use super::mount::TmpFs;
use crate::kafka::{files, wait};
use crate::proxy::{Proxy, Then};

/// Longest run of the program.
const RUN_TIMEOUT: Duration = Duration::from_mins(1);
/// The product's own word for topics of the source that [`Embedded`] serves.
const TOPICS: &str = "demo.*";

/// What a hanging broker sends of its first answer, which is longer.
const HEARD: u64 = 40;
/// Remedy where a directory cannot be made.
const ANOTHER: &str = "name a directory that this user may write";

/// A source of its own cluster, in this process.
struct Embedded {
    listener: Listener,
    _dir: TempDir,
}

impl Embedded {
    fn start(cluster_id: &str) -> Result<Self> {
        let wrong = |error: &dyn std::fmt::Display| ScenarioError::Wrong(error.to_string());
        let dir = temp_dir()?;
        let config = CatalogConfig {
            cluster_id: cluster_id.to_owned(),
            node_id: BrokerId(1),
            log: LogConfig::default(),
        };
        let catalog = Arc::new(Catalog::open(dir.path(), config).map_err(|e| wrong(&e))?);
        let spec = DemoSpec { seed: 1, bytes: 2 << 20, partitions: 1 };
        generate(&catalog, &spec, &mut |_| {}).map_err(|e| wrong(&e))?;
        let config = ListenerConfig::new(any_port(), BrokerId(1));
        let listener = Listener::start(catalog, config).map_err(|e| wrong(&e))?;
        Ok(Self { listener, _dir: dir })
    }

    fn address(&self) -> SocketAddr {
        self.listener.address()
    }
}

fn any_port() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

fn temp_dir() -> Result<TempDir> {
    TempDir::with_prefix("bad-input-").map_err(ScenarioError::file(&std::env::temp_dir()))
}

/// How a run of the program ended.
#[derive(Debug)]
struct Run {
    code: Option<i32>,
    out: String,
    errors: String,
}

/// The program, and a copy that it has made.
struct Bench<'a> {
    heliostat: &'a Path,
    copy: PathBuf,
    made: BTreeMap<PathBuf, Vec<u8>>,
    figures: Figures,
}

impl Bench<'_> {
    /// `mirror` to the copy with `more`: refused for the reason that holds all of `words`.
    fn refused(&mut self, what: &str, more: &[&str], words: &[&str]) -> Result<()> {
        let copy = self.copy.display().to_string();
        let arguments = [&["mirror", "--to", &copy], more].concat();
        self.refused_run(what, &arguments, words)
    }

    fn refused_run(&mut self, what: &str, arguments: &[&str], words: &[&str]) -> Result<()> {
        let run = run(self.heliostat, arguments)?;
        let said = run.errors.trim_end();
        let holds = run.code == Some(1)
            && said.starts_with("heliostat: ")
            && said.lines().count() == 1
            && words.iter().all(|word| said.contains(word));
        ensure(holds, || format!("{what}: want one line with {words:?}: {run:#?}"))?;
        self.is_untouched(what)?;
        self.figures.add(what, said);
        Ok(())
    }

    /// Every file of the copy is as it was made.
    fn is_untouched(&self, what: &str) -> Result<()> {
        let now = contents(&self.copy)?;
        let differs = |path: &&PathBuf| now.get(*path) != self.made.get(*path);
        let changed: Vec<_> = self.made.keys().chain(now.keys()).filter(differs).collect();
        ensure(changed.is_empty(), || format!("{what}: changed are {changed:?}"))
    }
}

/// Runs the program `heliostat` with everything that an operator can get wrong.
///
/// # Errors
///
/// [`ScenarioError`] with what the program said or did instead.
pub fn bad_input(heliostat: &Path) -> Result<Figures> {
    let (source, other) = (Embedded::start("source")?, Embedded::start("other")?);
    let scratch = temp_dir()?;
    let copy = scratch.path().join("copy");
    let at = source.address().to_string();
    let copy_text = copy.display().to_string();
    let mirror = ["mirror", "--source", &at, "--topics", TOPICS, "--to", &copy_text];
    let made = run(heliostat, &mirror)?;
    ensure(made.code == Some(0), || format!("no copy to begin with: {made:#?}"))?;
    let made = contents(&copy)?;
    ensure(made.values().map(Vec::len).sum::<usize>() > 1 << 20, || "an empty copy".to_owned())?;
    let mut bench = Bench { heliostat, copy, made, figures: Figures::default() };

    wrong_addresses(&mut bench, &source)?;
    wrong_settings(&mut bench, scratch.path(), &at)?;
    wrong_directories(&mut bench, scratch.path(), &at)?;
    let other = other.address().to_string();
    bench.refused(
        "another cluster's copy",
        &["--source", &other, "--topics", TOPICS],
        &["holds a copy of cluster source", "the source is cluster other"],
    )?;
    corrupted_segment(&mut bench, &at)?;
    Ok(bench.figures)
}

fn wrong_addresses(bench: &mut Bench<'_>, source: &Embedded) -> Result<()> {
    let mut refused = |what: &str, address: &str, words: &[&str]| {
        let words = [&[address], words].concat();
        bench.refused(what, &["--source", address, "--topics", TOPICS], &words)
    };
    let unknown = ["unknown host", "check the name"];
    refused("unknown host", "no.such.host.invalid:9092", &unknown)?;
    // A port that was free a moment ago and is closed again.
    let closed = TcpListener::bind(any_port()).and_then(|listener| listener.local_addr());
    let closed = closed.map_err(ScenarioError::file(Path::new("loopback")))?.to_string();
    refused("closed port", &closed, &["nothing listens there", "check the port"])?;
    let http = answers(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")?;
    refused("a port that speaks HTTP", &http, &["speaks HTTP", "name the port of a Kafka"])?;
    // An alert of TLS 1.2: what was sent is no hello.
    let tls = answers(&[21, 3, 3, 0, 2, 2, 10])?;
    refused("a port that speaks TLS", &tls, &["speaks TLS", "name a PLAINTEXT listener"])?;

    let hanging =
        Proxy::start(source.address()).map_err(ScenarioError::file(Path::new("proxy")))?;
    hanging.after(HEARD, Then::Stall);
    let address = hanging.address().to_string();
    let config = bench.copy.with_file_name("hanging.properties");
    fs::write(&config, "request.timeout.ms=1000\n").map_err(ScenarioError::file(&config))?;
    let config = config.display().to_string();
    bench.refused(
        "a broker that hangs in the middle of a response",
        &["--source", &address, "--source-config", &config, "--topics", TOPICS],
        &[&address, "stopped in the middle of the response", "40 of", "the broker hangs"],
    )
}

fn wrong_settings(bench: &mut Bench<'_>, scratch: &Path, at: &str) -> Result<()> {
    bench.refused(
        "wrong regular expression",
        &["--source", at, "--topics", "demo.(orders"],
        &["--topics", "\"demo.(orders\"", "no regular expression", "unclosed group"],
    )?;
    bench.refused(
        "no matching topic",
        &["--source", at, "--topics", "demos"],
        &["no topic of the source is to be copied", "check the patterns"],
    )?;
    for (what, text, words) in [
        (
            "unknown key",
            "mirror.gap.polcy=stop\n",
            ["unknown key mirror.gap.polcy", "did you mean mirror.gap.policy?"],
        ),
        ("wrong value", "flush.ms=soon\n", ["flush.ms=soon", "want a whole number"]),
    ] {
        let config = scratch.join("wrong.properties");
        fs::write(&config, text).map_err(ScenarioError::file(&config))?;
        let config = config.display().to_string();
        let arguments = ["--source", at, "--source-config", &config, "--topics", TOPICS];
        bench.refused(what, &arguments, &[&[config.as_str()], &words[..]].concat())?;
    }
    Ok(())
}

fn wrong_directories(bench: &mut Bench<'_>, scratch: &Path, at: &str) -> Result<()> {
    let mut refused = |what: &str, to: &Path, remedy: &str| {
        let to = to.display().to_string();
        let arguments = ["mirror", "--source", at, "--topics", TOPICS, "--to", &to];
        bench.refused_run(what, &arguments, &[&to, remedy])
    };
    let file = scratch.join("file");
    fs::write(&file, "kept").map_err(ScenarioError::file(&file))?;
    refused("a file where the directory is to be", &file, ANOTHER)?;
    refused("a file above the directory", &file.join("copy"), ANOTHER)?;
    let text = fs::read_to_string(&file).map_err(ScenarioError::file(&file))?;
    ensure(text == "kept", || "the file was changed".to_owned())?;
    // Root may write everywhere but here.
    if TmpFs::is_allowed() {
        let disk = TmpFs::new(1 << 20)?;
        disk.make_read_only()?;
        refused("a new directory on a read-only file system", &disk.path().join("copy"), ANOTHER)?;
        let writable = "it must exist and be writable";
        refused("a directory on a read-only file system", disk.path(), writable)?;
    }
    Ok(())
}

/// A byte of a record is another, in a copy that was closed cleanly.
fn corrupted_segment(bench: &mut Bench<'_>, at: &str) -> Result<()> {
    let mut segments = Vec::new();
    for path in bench.made.keys().filter_map(|path| path.parent()).collect::<Vec<_>>() {
        segments.extend(files::segments(&bench.copy.join(path))?);
    }
    let none = || ScenarioError::Wrong("the copy has no segment".to_owned());
    let largest = segments.iter().max_by_key(|path| fs::metadata(path).map_or(0, |it| it.len()));
    let path = largest.ok_or_else(none)?;
    let mut bytes = fs::read(path).map_err(ScenarioError::file(path))?;
    let middle = bytes.len() / 2;
    let byte = bytes.get_mut(middle).ok_or_else(none)?;
    *byte ^= 0x55;
    fs::write(path, &bytes).map_err(ScenarioError::file(path))?;
    bench.made = contents(&bench.copy)?;

    let copy = bench.copy.display().to_string();
    let run = run(bench.heliostat, &["verify", "--source", at, "--dir", &copy])?;
    let file = path.display().to_string();
    let told: Vec<_> = run.out.lines().filter(|line| line.contains(&file)).collect();
    ensure(run.code == Some(1) && told.len() == 1, || {
        format!("a corrupted segment, {file} at {middle}: {run:#?}")
    })?;
    bench.is_untouched("verify of a corrupted segment")?;
    bench.figures.add("verify of a corrupted segment", told.concat().trim());
    Ok(())
}

/// A port that answers whatever it is asked with the same bytes.
fn answers(bytes: &'static [u8]) -> Result<String> {
    let failed = ScenarioError::file(Path::new("loopback"));
    let listening =
        TcpListener::bind(any_port()).and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) = listening.map_err(failed)?;
    // It ends with this process: nobody tells it when the last connection has been.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that is gone already needs no answer.
            let _ = answer(stream, bytes);
        }
    });
    Ok(address.to_string())
}

fn answer(mut stream: TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut asked = [0; 512];
    let _ = stream.read(&mut asked)?;
    stream.write_all(bytes)
}

/// All files below a directory by their path in it; a lock's contents are no one's.
fn contents(dir: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(&at).map_err(ScenarioError::file(&at))? {
            let path = entry.map_err(ScenarioError::file(&at))?.path();
            if path.is_dir() {
                left.push(path);
            } else if !path.ends_with(".lock") {
                let bytes = fs::read(&path).map_err(ScenarioError::file(&path))?;
                found.insert(path.strip_prefix(dir).unwrap_or(&path).to_path_buf(), bytes);
            }
        }
    }
    Ok(found)
}

/// Builds the program as this one was built, and returns where it is.
///
/// # Errors
///
/// [`ScenarioError::Wrong`] with the compiler's words.
pub fn build() -> Result<PathBuf> {
    let this = std::env::current_exe().map_err(ScenarioError::file(Path::new("campaign")))?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--package", "heliostat", "--locked"]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let built = command.current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let built = built.map_err(ScenarioError::file(Path::new("cargo")))?;
    ensure(built.status.success(), || {
        format!("heliostat does not build: {}", String::from_utf8_lossy(&built.stderr))
    })?;
    Ok(this.with_file_name("heliostat"))
}

/// Runs the program to its end.
fn run(heliostat: &Path, arguments: &[&str]) -> Result<Run> {
    let failed = || ScenarioError::file(heliostat);
    let scratch = temp_dir()?;
    // Files instead of pipes: nobody has to read while it runs.
    let (out, errors) = (scratch.path().join("out"), scratch.path().join("errors"));
    let create = |path: &Path| fs::File::create(path).map_err(ScenarioError::file(path));
    let mut child = Command::new(heliostat)
        .args(arguments)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stdout(create(&out)?)
        .stderr(create(&errors)?)
        .spawn()
        .map_err(failed())?;
    let ended = wait::until(format!("the end of {arguments:?}"), RUN_TIMEOUT, || {
        Ok(child.try_wait().ok().flatten())
    });
    if ended.is_err() {
        // Either fails only for a process that is gone.
        let _ = child.kill();
        let _ = child.wait();
    }
    let text = |path: &Path| fs::read_to_string(path).map_err(ScenarioError::file(path));
    Ok(Run { code: ended?.code(), out: text(&out)?, errors: text(&errors)? })
}
