//! `heliostat top` at a terminal of its own, and without one.

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::child::{Home, Server, in_step, run, until};
use super::source::Source;

/// Only a hang reaches it.
const DEADLINE: Duration = Duration::from_mins(1);
/// The other screen, and the way back from it.
const ENTERS: &str = "\u{1b}[?1049h";
const LEAVES: &str = "\u{1b}[?1049l";

/// The program at a terminal of 80 columns and 24 lines.
struct Terminal {
    child: Child,
    master: File,
    /// Keeps the terminal when the program has gone.
    slave: File,
    output: Receiver<Vec<u8>>,
    /// All that was written.
    written: Vec<u8>,
}

/// What stands on a screen after all this was written: texts and moves of the cursor are
/// followed, and all else is passed over.
fn screen(written: &[u8]) -> String {
    let mut lines = vec![vec![' '; 80]; 24];
    let (mut line, mut column) = (0, 0);
    let text = String::from_utf8_lossy(written);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\u{1b}' {
            if let Some(cell) = lines.get_mut(line).and_then(|line| line.get_mut(column)) {
                *cell = letter;
            }
            column += 1;
            continue;
        }
        // ESC [, numbers, a letter.
        let _ = letters.next();
        let mut numbers = String::new();
        let order = letters.by_ref().find(|letter| {
            let is_order = letter.is_ascii_alphabetic();
            if !is_order {
                numbers.push(*letter);
            }
            is_order
        });
        if order == Some('H') {
            let mut at = numbers.split(';').map(|it| it.parse::<usize>().unwrap_or(1) - 1);
            (line, column) = (at.next().unwrap_or(0), at.next().unwrap_or(0));
        }
    }
    lines.iter().map(|line| line.iter().collect::<String>() + "\n").collect()
}

impl Terminal {
    fn start(arguments: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let open = || File::options().read(true).write(true).open(PathBuf::from(&name)).unwrap();
        let slave = open();
        // A session of its own: else it would ask the terminal of whoever runs the tests.
        let child = Command::new("setsid")
            .args(["--ctty", env!("CARGO_BIN_EXE_heliostat"), "top"])
            .args(arguments)
            .stdin(open())
            .stdout(open())
            .stderr(Stdio::piped())
            .env("TERM", "xterm-256color")
            .spawn()
            .unwrap();
        let master = File::from(master);
        let mut reader = master.try_clone().unwrap();
        let (sender, output) = channel();
        // Ends with the terminal.
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok(got @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..got].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, master, slave, output, written: Vec::new() }
    }

    /// Waits until all that was written `holds`.
    #[track_caller]
    fn until(&mut self, what: &str, holds: impl Fn(&[u8]) -> bool) {
        let since = Instant::now();
        while !holds(&self.written) {
            let left = DEADLINE.saturating_sub(since.elapsed());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.written.extend(bytes),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{what:?} is not shown:\n{}", screen(&self.written))
                }
            }
        }
    }

    /// Waits until a text is on the screen.
    #[track_caller]
    fn shows(&mut self, text: &str) {
        self.until(text, |written| screen(written).contains(text));
    }

    /// Waits until an order is written.
    #[track_caller]
    fn orders(&mut self, order: &str) {
        let is_there = |written: &[u8]| String::from_utf8_lossy(written).contains(order);
        self.until(order, is_there);
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.slave).unwrap().local_modes;
        !modes.contains(LocalModes::ICANON) && !modes.contains(LocalModes::ECHO)
    }

    /// Its end; the terminal is as it was.
    #[track_caller]
    fn ends(mut self) -> ExitStatus {
        self.orders(LEAVES);
        let status = self.child.wait().unwrap();
        assert!(!self.is_raw(), "the terminal is not given back");
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server with mirror `m` of three partitions, in step.
fn server(home: &Home, source: &Source) -> Server {
    let server = home.start();
    let mut client = server.client();
    run(async {
        source.mirror(&mut client, &["t"]).await;
        until(&mut client, in_step).await;
    });
    server
}

#[test]
fn a_terminal_is_drawn_on_and_given_back() {
    let (source, _) = Source::with_topic();
    let home = Home::new();
    let mut server = server(&home, &source);
    let at = server.address().to_string();
    let mut top = Terminal::start(&["--bootstrap-server", &at]);
    top.orders(ENTERS);
    top.shows("3 partitions, none failing");
    assert!(top.is_raw());
    top.press("\r");
    top.shows("TOPIC");
    top.shows("3 partitions");
    top.press("\r");
    top.shows("PART");
    top.shows("source ends at");
    // What is known stays when nobody answers.
    server.kill();
    top.shows("OLD, next try in");
    top.press("q");
    assert_eq!(top.ends().code(), Some(0));
}

#[test]
fn signals_give_the_terminal_back() {
    // Nobody listens there: that is waited for, too.
    for signal in ["-TERM", "-INT", "-HUP"] {
        let mut top = Terminal::start(&["--bootstrap-server", "127.0.0.1:1"]);
        top.orders(ENTERS);
        top.shows("NO FIGURES");
        assert!(top.is_raw());
        let pid = top.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        assert_eq!(top.ends().code(), Some(0), "{signal}");
    }
    // In raw mode this is a key.
    let mut top = Terminal::start(&["--bootstrap-server", "127.0.0.1:1"]);
    top.shows("NO FIGURES");
    top.press("\u{3}");
    assert_eq!(top.ends().code(), Some(0));
}

#[test]
fn without_a_terminal_one_frame_is_printed_or_the_way_to_it_named() {
    let (source, _) = Source::with_topic();
    let home = Home::new();
    let server = server(&home, &source);
    let at = server.address().to_string();
    let heliostat = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_heliostat"));
        command.args(["top", "--bootstrap-server", &at]).args(arguments);
        command.stdin(Stdio::null()).output().unwrap()
    };
    let run = heliostat(&["--once", "--mirror", "m", "--topic", "t"]);
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{text}");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .filter(|words: &Vec<&str>| words.len() > 2 && words[0].parse::<i32>().is_ok())
        .collect();
    let ends: Vec<_> = rows.iter().map(|row| (row[0], row[1], row[2])).collect();
    assert_eq!(ends, [("0", "3", "3"), ("1", "4", "4"), ("2", "2", "2")], "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");

    let run = heliostat(&[]);
    let errors = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(1));
    assert!(errors.contains("--once") && errors.lines().count() == 1, "{errors}");
    let run = heliostat(&["--once", "--mirror", "nobody"]);
    let errors = String::from_utf8(run.stderr).unwrap();
    assert_eq!((run.status.code(), run.stdout.len()), (Some(1), 0));
    assert!(errors.contains("UNKNOWN_CLUSTER_MIRROR"), "{errors}");
}
