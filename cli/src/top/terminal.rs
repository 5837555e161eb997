//! The terminal: taken over, drawn on, given back on every way out.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use super::draw::{Now, draw};
use super::model::{Key, Model};

/// How often the thread that reads keys looks whether it is wanted.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// Keys that wait. Somebody who leans on one is heard as far as that.
const KEYS_MAX: usize = 64;

/// Raw mode and the other screen, for as long as this lives. A panic gives them back before it
/// is told of.
#[derive(Debug)]
pub(super) struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        match ratatui::try_init() {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                // Half of it may have been done.
                ratatui::restore();
                Err(error)
            }
        }
    }

    /// Draws a frame.
    pub(super) fn show(&mut self, model: &mut Model, now: Now) -> io::Result<()> {
        let mut page = model.page;
        self.terminal.draw(|frame| {
            let area = frame.area();
            page = draw(frame.buffer_mut(), area, model, now);
        })?;
        model.page = page;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// What a terminal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Key(Key),
    /// It has another size.
    Resized,
}

/// Reads keys on a thread of its own, which ends with this.
#[derive(Debug)]
pub(super) struct Keys {
    received: mpsc::Receiver<Input>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keys {
    pub(super) fn read() -> io::Result<Self> {
        let (sender, received) = mpsc::channel(KEYS_MAX);
        let is_over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_over);
        let thread = std::thread::Builder::new().name("keys".to_owned());
        let thread = thread.spawn(move || read_keys(&sender, &told))?;
        Ok(Self { received, is_over, thread: Some(thread) })
    }

    /// The next one; `None` once the terminal has gone. May be cancelled.
    pub(super) async fn next(&mut self) -> Option<Input> {
        self.received.recv().await
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes a thread that waits for room.
        self.received.close();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn read_keys(sender: &mpsc::Sender<Input>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let event = match event::poll(LOOKS_EVERY) {
            Ok(false) => continue,
            Ok(true) => event::read(),
            Err(error) => Err(error),
        };
        let Ok(event) = event else { return };
        if let Some(input) = meaning(&event)
            && sender.blocking_send(input).is_err()
        {
            return;
        }
    }
}

/// What an event means here.
fn meaning(event: &Event) -> Option<Input> {
    let key = match event {
        Event::Resize(..) => return Some(Input::Resized),
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return None,
    };
    let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(Input::Key(match key.code {
        KeyCode::Char('c' | 'd') if has_control => Key::Interrupt,
        KeyCode::Char(letter) if !has_control => Key::Char(letter),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::process::{Command, Stdio};

    use ratatui::crossterm::event::KeyEvent;
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};

    use super::*;

    /// Whether this test is to panic: the one below starts itself once more.
    const PANICS: &str = "HELIOSTAT_TEST_PANICS_ON_A_SCREEN";

    /// Goal: what a panic says can be read, and the shell is as it was. Method: a panic in a
    /// process of its own, at a terminal of its own.
    #[test]
    fn a_panic_gives_the_terminal_back() {
        if std::env::var_os(PANICS).is_some() {
            let _screen = Screen::open().unwrap();
            panic!("on purpose");
        }
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let open = || File::options().read(true).write(true).open(&name).unwrap();
        let slave = open();
        let this = "top::terminal::tests::a_panic_gives_the_terminal_back";
        let status = Command::new("setsid")
            .arg("--ctty")
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", this, "--nocapture"])
            .envs([(PANICS, "1"), ("RUST_BACKTRACE", "0")])
            .stdin(open())
            .stdout(open())
            .stderr(Stdio::from(open()))
            .status()
            .unwrap();
        assert!(!status.success());
        let modes = tcgetattr(&slave).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
        drop(slave);
        let mut written = Vec::new();
        // Ends with an error, as nobody has the other end.
        let _ = File::from(master).read_to_end(&mut written);
        let written = String::from_utf8_lossy(&written);
        let at = |text: &str| written.find(text).unwrap_or_else(|| panic!("{text}: {written}"));
        assert!(at("\u{1b}[?1049h") < at("\u{1b}[?1049l"), "{written}");
        assert!(at("\u{1b}[?1049l") < at("on purpose"), "{written}");
    }

    #[test]
    fn keys_mean_what_they_say() {
        let press = |code, modifiers| meaning(&Event::Key(KeyEvent::new(code, modifiers)));
        let plain = |code| press(code, KeyModifiers::NONE);
        assert_eq!(plain(KeyCode::Char('q')), Some(Input::Key(Key::Char('q'))));
        assert_eq!(
            press(KeyCode::Char('G'), KeyModifiers::SHIFT),
            Some(Input::Key(Key::Char('G')))
        );
        assert_eq!(
            press(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(Input::Key(Key::Interrupt))
        );
        assert_eq!(press(KeyCode::Char('s'), KeyModifiers::CONTROL), None);
        assert_eq!(plain(KeyCode::F(1)), None);
        assert_eq!(meaning(&Event::Resize(80, 24)), Some(Input::Resized));
    }
}
