//! What can be typed, and what it asks for.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use heliostat_core::select::{TopicSelector, split_patterns};

use crate::admin_args::AdminArgs;
use crate::failure::Failure;

/// Longest wait when nothing else is said, in seconds.
const WAIT_SECONDS: u64 = 60;
/// Every topic, as a pattern.
const ALL_TOPICS: &str = ".*";

/// Arguments of `mirrors`.
#[derive(Args, Debug)]
pub(crate) struct MirrorsArgs {
    #[command(flatten)]
    pub(super) admin: AdminArgs,

    /// Make a mirror of the source that --mirror-config names.
    #[arg(long)]
    create: bool,

    /// Mirror topics, those that match now and those that appear later.
    #[arg(long)]
    start: bool,

    /// Make topics writable here: failover.
    #[arg(long)]
    stop: bool,

    /// Leave topics as they are; they stay read-only.
    #[arg(long)]
    pause: bool,

    /// Mirror paused topics again.
    #[arg(long)]
    resume: bool,

    /// Try failed partitions again, with all their attempts.
    #[arg(long)]
    recover: bool,

    /// Remove a mirror whose topics are all stopped; what it copied stays.
    #[arg(long)]
    delete: bool,

    /// List all mirrors.
    #[arg(long)]
    list: bool,

    /// Show partitions with offsets, lag and state, of one mirror or of all.
    #[arg(long)]
    describe: bool,

    /// Name of the mirror.
    #[arg(long, value_name = "NAME")]
    mirror: Option<String>,

    /// Properties file with the mirror's configs, bootstrap.servers first of all (--create).
    #[arg(long, value_name = "FILE")]
    mirror_config: Option<PathBuf>,

    /// Topic names or regular expressions, commas between several.
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    topics: Option<String>,

    /// Every topic, instead of --topics.
    #[arg(long)]
    all_topics: bool,

    /// Topics to leave out, now and later (--start).
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    exclude: Option<String>,

    /// Print one JSON document (--describe).
    #[arg(long)]
    json: bool,

    /// Only partitions that failed or cannot reach their source, with the reason (--describe).
    #[arg(long)]
    failed: bool,

    /// Only say what would happen (--start, --stop, --delete).
    #[arg(long)]
    dry_run: bool,

    /// Wait until every partition has reached the state that was asked for.
    #[arg(long)]
    wait: bool,

    /// Longest wait, in seconds; default: 60 (--wait).
    #[arg(long, value_name = "SECONDS")]
    wait_timeout: Option<u64>,
}

/// What is done to topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Start,
    Stop,
    Pause,
    Resume,
    Recover,
}

impl Verb {
    /// State that the topics' partitions are to reach.
    pub(super) fn goal(self) -> &'static str {
        match self {
            Self::Start | Self::Resume | Self::Recover => "MIRRORING",
            Self::Stop => "STOPPED",
            Self::Pause => "PAUSED",
        }
    }

    /// As progress is headed.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Recover => "recover",
        }
    }
}

/// What the arguments ask for, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Create { mirror: String, config: PathBuf },
    Topics(TopicsWish),
    Delete { mirror: String, dry_run: bool },
    List,
    Describe { mirror: Option<String>, json: bool, failed: bool },
}

/// What is to be done to topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopicsWish {
    pub(super) verb: Verb,
    pub(super) mirror: String,
    /// Names and regular expressions; never empty.
    pub(super) patterns: Vec<String>,
    pub(super) exclude: Vec<String>,
    pub(super) dry_run: bool,
    /// Longest wait for the state; `None` for none.
    pub(super) wait: Option<Duration>,
}

impl MirrorsArgs {
    /// Exactly one action, with the options that it takes and no others.
    pub(super) fn wish(&self) -> Result<Wish, Failure> {
        let actions = [
            ("--create", self.create),
            ("--start", self.start),
            ("--stop", self.stop),
            ("--pause", self.pause),
            ("--resume", self.resume),
            ("--recover", self.recover),
            ("--delete", self.delete),
            ("--list", self.list),
            ("--describe", self.describe),
        ];
        let given: Vec<_> = actions.iter().filter(|(_, is_given)| *is_given).collect();
        let action = match given.as_slice() {
            [(action, _)] => *action,
            [] => return Err(Failure::new(format!("no action; {}", one_of(&actions)))),
            [first, second, ..] => {
                let (first, second) = (first.0, second.0);
                let text = format!("{first} and {second}; {}", one_of(&actions));
                return Err(Failure::new(text));
            }
        };
        self.check_options(action)?;
        match action {
            "--list" => Ok(Wish::List),
            "--describe" => {
                let mirror = self.mirror.clone();
                Ok(Wish::Describe { mirror, json: self.json, failed: self.failed })
            }
            "--create" => {
                let config = self.mirror_config.clone();
                let config = config.ok_or_else(|| missing(action, "--mirror-config FILE"))?;
                Ok(Wish::Create { mirror: self.named(action)?, config })
            }
            "--delete" => Ok(Wish::Delete { mirror: self.named(action)?, dry_run: self.dry_run }),
            "--start" => self.topics_wish(action, Verb::Start),
            "--stop" => self.topics_wish(action, Verb::Stop),
            "--pause" => self.topics_wish(action, Verb::Pause),
            "--resume" => self.topics_wish(action, Verb::Resume),
            _ => self.topics_wish(action, Verb::Recover),
        }
    }

    /// Refuses options of other actions: what is not heeded must not look as if it were.
    fn check_options(&self, action: &str) -> Result<(), Failure> {
        const TOPICS: &[&str] = &["--start", "--stop", "--pause", "--resume", "--recover"];
        let options: [(&str, bool, &[&str]); 9] = [
            ("--mirror-config", self.mirror_config.is_some(), &["--create"]),
            ("--topics", self.topics.is_some(), TOPICS),
            ("--all-topics", self.all_topics, TOPICS),
            ("--exclude", self.exclude.is_some(), &["--start"]),
            ("--json", self.json, &["--describe"]),
            ("--failed", self.failed, &["--describe"]),
            ("--dry-run", self.dry_run, &["--start", "--stop", "--delete"]),
            ("--wait", self.wait, TOPICS),
            ("--wait-timeout", self.wait_timeout.is_some(), TOPICS),
        ];
        for (option, is_given, with) in options {
            if is_given && !with.contains(&action) {
                let with = with.join(", ");
                let text = format!("{option} does not go with {action}, only with {with}");
                return Err(Failure::new(text));
            }
        }
        if action == "--list" && self.mirror.is_some() {
            let text = "--mirror does not go with --list, which lists all mirrors";
            return Err(Failure::new(text).remedy("use --describe for one"));
        }
        Ok(())
    }

    fn named(&self, action: &str) -> Result<String, Failure> {
        let name = self.mirror.clone().filter(|name| !name.is_empty());
        name.ok_or_else(|| missing(action, "--mirror NAME"))
    }

    fn topics_wish(&self, action: &str, verb: Verb) -> Result<Wish, Failure> {
        let mirror = self.named(action)?;
        let topics = match (&self.topics, self.all_topics) {
            (Some(_), true) => {
                let text = "--topics and --all-topics; give one of them";
                return Err(Failure::new(text));
            }
            (Some(topics), false) => topics.as_str(),
            (None, true) => ALL_TOPICS,
            (None, false) => return Err(missing(action, "--topics REGEX or --all-topics")),
        };
        let exclude = self.exclude.as_deref().unwrap_or_default();
        // The host compiles them as well; here the operator learns of it before anything else.
        TopicSelector::for_discovery(("--topics", topics), ("--exclude", exclude))
            .map_err(|error| Failure::new(error.to_string()))?;
        let (patterns, exclude) = (entries(topics), entries(exclude));
        if patterns.is_empty() {
            return Err(missing(action, "--topics REGEX or --all-topics"));
        }
        if self.wait && self.dry_run {
            let text = "--wait and --dry-run; a dry run changes nothing that could be waited for";
            return Err(Failure::new(text));
        }
        if self.wait_timeout.is_some() && !self.wait {
            return Err(Failure::new("--wait-timeout without --wait; give both"));
        }
        let seconds = self.wait_timeout.unwrap_or(WAIT_SECONDS);
        let wait = self.wait.then(|| Duration::from_secs(seconds));
        let dry_run = self.dry_run;
        Ok(Wish::Topics(TopicsWish { verb, mirror, patterns, exclude, dry_run, wait }))
    }
}

fn one_of(actions: &[(&str, bool)]) -> String {
    let names: Vec<_> = actions.iter().map(|(name, _)| *name).collect();
    format!("give exactly one of {}", names.join(", "))
}

fn missing(action: &str, option: &str) -> Failure {
    Failure::new(format!("{action} needs {option}"))
}

fn entries(list: &str) -> Vec<String> {
    split_patterns(list).into_iter().filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: MirrorsArgs,
    }

    fn wish(line: &str) -> Result<Wish, String> {
        let words = ["mirrors"].into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).unwrap();
        line.args.wish().map_err(|failure| failure.to_string())
    }

    #[track_caller]
    fn refused(line: &str, message: &str) {
        assert_eq!(wish(line).unwrap_err(), message, "{line}");
    }

    fn topics(verb: Verb, patterns: &[&str]) -> TopicsWish {
        TopicsWish {
            verb,
            mirror: "m".to_owned(),
            patterns: patterns.iter().map(|it| (*it).to_owned()).collect(),
            exclude: Vec::new(),
            dry_run: false,
            wait: None,
        }
    }

    #[test]
    fn every_action_is_understood() {
        let m = || "m".to_owned();
        let create = Wish::Create { mirror: m(), config: PathBuf::from("f") };
        assert_eq!(wish("--create --mirror m --mirror-config f"), Ok(create));
        assert_eq!(wish("--list"), Ok(Wish::List));
        let describe = Wish::Describe { mirror: Some(m()), json: true, failed: true };
        assert_eq!(wish("--describe --mirror m --json --failed"), Ok(describe));
        let describe = Wish::Describe { mirror: None, json: false, failed: false };
        assert_eq!(wish("--describe"), Ok(describe));
        let delete = Wish::Delete { mirror: m(), dry_run: true };
        assert_eq!(wish("--delete --mirror m --dry-run"), Ok(delete));
        let start = TopicsWish {
            exclude: vec!["x".to_owned()],
            dry_run: true,
            ..topics(Verb::Start, &["a", "b{1,2}"])
        };
        let line = "--start --mirror m --topics a,b{1,2} --exclude x --dry-run";
        assert_eq!(wish(line), Ok(Wish::Topics(start)));
        let wait = Some(Duration::from_secs(60));
        let stop = TopicsWish { wait, ..topics(Verb::Stop, &[".*"]) };
        assert_eq!(wish("--stop --mirror m --all-topics --wait"), Ok(Wish::Topics(stop)));
        let wait = Some(Duration::from_secs(5));
        let pause = TopicsWish { wait, ..topics(Verb::Pause, &["a"]) };
        let line = "--pause --mirror m --topics a --wait --wait-timeout 5";
        assert_eq!(wish(line), Ok(Wish::Topics(pause)));
        for (action, verb) in [("--resume", Verb::Resume), ("--recover", Verb::Recover)] {
            let want = Wish::Topics(topics(verb, &["a"]));
            assert_eq!(wish(&format!("{action} --mirror m --topics a")), Ok(want));
        }
    }

    #[test]
    fn exactly_one_action() {
        let all = "give exactly one of --create, --start, --stop, --pause, --resume, --recover, \
                   --delete, --list, --describe";
        refused("--mirror m", &format!("no action; {all}"));
        refused("--list --describe", &format!("--list and --describe; {all}"));
    }

    #[test]
    fn each_option_goes_with_its_actions() {
        refused("--create --mirror m", "--create needs --mirror-config FILE");
        refused("--create --mirror-config f", "--create needs --mirror NAME");
        refused("--delete", "--delete needs --mirror NAME");
        for action in ["--start", "--stop", "--pause", "--resume", "--recover"] {
            refused(
                &format!("{action} --mirror m"),
                &format!("{action} needs --topics REGEX or --all-topics"),
            );
            refused(&format!("{action} --topics a"), &format!("{action} needs --mirror NAME"));
        }
        refused(
            "--start --mirror m --topics , --wait",
            "--start needs --topics REGEX or --all-topics",
        );
        refused(
            "--stop --mirror m --topics a --exclude b",
            "--exclude does not go with --stop, only with --start",
        );
        refused("--list --json", "--json does not go with --list, only with --describe");
        refused("--list --failed", "--failed does not go with --list, only with --describe");
        refused(
            "--pause --mirror m --topics a --dry-run",
            "--dry-run does not go with --pause, only with --start, --stop, --delete",
        );
        refused(
            "--list --mirror m",
            "--mirror does not go with --list, which lists all mirrors; use --describe for one",
        );
        refused(
            "--stop --mirror m --topics a --all-topics",
            "--topics and --all-topics; give one of them",
        );
        refused(
            "--stop --mirror m --topics a --wait --dry-run",
            "--wait and --dry-run; a dry run changes nothing that could be waited for",
        );
        refused(
            "--stop --mirror m --topics a --wait-timeout 1",
            "--wait-timeout without --wait; give both",
        );
        refused(
            "--stop --mirror m --topics a,b(",
            "--topics: pattern 2 (\"b(\") is no regular expression: unclosed group at character \
             2; patterns are separated by commas, a literal dot is written \\.",
        );
    }
}
