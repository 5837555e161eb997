//! Kafka's jars: which versions there are, where they lie, how they got there.
//!
//! Maven resolves a version once into the cache; after that no network is needed. The harness's
//! own Java sources are compiled into the same place. Two test processes may ask at once: a file
//! lock lets one of them work and the other wait.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use super::archive;
use super::mirror_maker::MirrorMakerJars;

/// A release of Kafka that the harness can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KafkaVersion {
    /// 2.1.1 with ZooKeeper: the oldest broker that today's Java clients talk to.
    V2_1,
    /// 2.8.2 with ZooKeeper: message formats 0 and 1, Fetch up to version 12.
    V2_8,
    /// 3.9.2, `KRaft` by default, or ZooKeeper: the last release with both.
    V3_9,
    /// 4.4.0, `KRaft`.
    V4,
}

impl KafkaVersion {
    /// All of them, oldest first.
    pub const ALL: [Self; 4] = [Self::V2_1, Self::V2_8, Self::V3_9, Self::V4];

    /// Version number of the artifacts.
    pub fn number(self) -> &'static str {
        match self {
            Self::V2_1 => "2.1.1",
            Self::V2_8 => "2.8.2",
            Self::V3_9 => "3.9.2",
            Self::V4 => "4.4.0",
        }
    }

    /// Whether brokers of this version can run without ZooKeeper.
    pub fn has_kraft(self) -> bool {
        self >= Self::V3_9
    }

    /// Whether brokers of this version can run with ZooKeeper.
    pub fn has_zookeeper(self) -> bool {
        self <= Self::V3_9
    }

    /// Maven coordinates: group, artifact, version. The broker comes first, because Maven takes
    /// the version of a shared dependency that it meets first.
    fn coordinates(self) -> Coordinates {
        const KAFKA: &str = "org.apache.kafka";
        match self {
            // ZooKeeper 3.4 cannot parse addresses as Java 14 and later print them; 3.5.9 can,
            // and serves a 2.1 broker unchanged.
            Self::V2_1 => &[
                (KAFKA, "kafka_2.12", "2.1.1"),
                (KAFKA, "kafka-tools", "2.1.1"),
                ("org.apache.zookeeper", "zookeeper", "3.5.9"),
            ],
            Self::V2_8 => &[(KAFKA, "kafka_2.13", "2.8.2"), (KAFKA, "kafka-tools", "2.8.2")],
            Self::V3_9 => &[(KAFKA, "kafka_2.13", "3.9.2"), (KAFKA, "kafka-tools", "3.9.2")],
            // 4.x logs through slf4j 1.7 to log4j 2, but its POMs leave the binding out.
            Self::V4 => &[
                (KAFKA, "kafka_2.13", "4.4.0"),
                (KAFKA, "kafka-tools", "4.4.0"),
                ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.5"),
            ],
        }
    }
}

/// What Maven is asked for: group, artifact, version.
type Coordinates = &'static [(&'static str, &'static str, &'static str)];

/// The newest release whose MirrorMaker Maven resolves; it reads from and writes to brokers of
/// 2.1 and later.
const MIRROR_MAKER: &str = "4.3.1";
const MIRROR_MAKER_COORDINATES: Coordinates = &[
    ("org.apache.kafka", "connect-mirror", MIRROR_MAKER),
    ("org.apache.kafka", "connect-runtime", MIRROR_MAKER),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.5"),
];

/// The newest release of which Maven has the tests' classes of storage too. Its store does not
/// work in a broker of 4.4.0, where classes have moved.
const TIERED: &str = "4.3.1";
const TIERED_COORDINATES: Coordinates = &[
    ("org.apache.kafka", "kafka_2.13", TIERED),
    ("org.apache.kafka", "kafka-tools", TIERED),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.5"),
];

/// A broker with the classes of its own tests.
fn tiered_pom() -> String {
    let store = format!(
        "<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-storage</artifactId>\
             <version>{TIERED}</version><classifier>test</classifier></dependency>\n\
         </dependencies>"
    );
    pom_of(TIERED_COORDINATES).replace("</dependencies>", &store)
}

fn pom_of(coordinates: Coordinates) -> String {
    let mut pom = String::from(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n\
             <modelVersion>4.0.0</modelVersion>\n\
             <groupId>harness</groupId><artifactId>kafka</artifactId><version>1</version>\n\
             <dependencies>\n",
    );
    for (group, artifact, version) in coordinates {
        let _ = writeln!(
            pom,
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
                 <version>{version}</version></dependency>",
        );
    }
    pom.push_str("</dependencies>\n</project>\n");
    pom
}

/// A version that the harness does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Kafka {0:?} is not here: 4, 3.9, 2.8 and 2.1 are")]
pub struct UnknownVersion(String);

impl FromStr for KafkaVersion {
    type Err = UnknownVersion;

    /// Takes the release number or the beginning of it, such as `3.9` or `4`.
    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        let newest_first = Self::ALL.into_iter().rev();
        let starts = |number: &str| {
            number.strip_prefix(text).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        newest_first
            .into_iter()
            .find(|version| starts(version.number()))
            .ok_or_else(|| UnknownVersion(text.to_owned()))
    }
}

/// Why real Kafka cannot be had on this machine. A test prints it and passes, unless
/// `HELIOSTAT_REQUIRE_KAFKA=1`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Skipped {
    /// No Java runtime.
    #[error("no JDK: {program} does not start; install JDK 17 or later, or set JAVA_HOME")]
    NoJdk {
        /// Program that was tried.
        program: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// No Maven, and the jars are not in the cache.
    #[error("Kafka {version} is not in {cache:?} and mvn does not start; install Maven")]
    NoMaven {
        /// Version as in the artifact.
        version: &'static str,
        /// Cache directory of the version.
        cache: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// Maven could not resolve the jars.
    #[error("Maven does not resolve Kafka {version}:\n{output}")]
    NotResolved {
        /// Version as in the artifact.
        version: &'static str,
        /// End of Maven's output.
        output: String,
    },
    /// The harness's Java sources did not compile.
    #[error("the harness's Java sources do not compile:\n{output}")]
    NotCompiled {
        /// The compiler's output.
        output: String,
    },
    /// The cache directory refused.
    #[error("cache {path:?}")]
    Cache {
        /// File or directory.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

/// Jars of one version, ready to run.
#[derive(Clone, Debug)]
pub struct Artifacts {
    version: KafkaVersion,
    java: PathBuf,
    /// Directory of the version in the cache.
    home: PathBuf,
    /// Directory of the version whose clients the driver uses.
    driver_home: PathBuf,
    /// Directory of the compiled harness sources.
    classes: PathBuf,
}

impl Artifacts {
    /// The version.
    pub fn version(&self) -> KafkaVersion {
        self.version
    }

    /// Java launcher.
    pub fn java(&self) -> &Path {
        &self.java
    }

    /// Class path: the harness's classes and all jars of the version.
    pub fn class_path(&self) -> String {
        self.class_path_with(&self.home)
    }

    /// Class path of the driver, which has the newest clients whatever the broker's version.
    pub(crate) fn driver_class_path(&self) -> String {
        self.class_path_with(&self.driver_home)
    }

    /// Jars only: a JVM archives no classes of directories.
    fn class_path_with(&self, home: &Path) -> String {
        let harness = self.classes.join(HARNESS_JAR);
        format!("{}:{}", harness.display(), home.join("libs/*").display())
    }

    /// Where the class-data archive of brokers and tools of this version is, if it is.
    pub(crate) fn broker_archive(&self) -> PathBuf {
        self.classes.join(format!("kafka-{}.jsa", self.version.number()))
    }

    /// Where the class-data archive of the driver is, if it is.
    pub(crate) fn driver_archive(&self) -> PathBuf {
        self.classes.join("driver.jsa")
    }

    /// Logging option of the driver.
    pub(crate) fn driver_logging(&self) -> String {
        logging_option(KafkaVersion::V4, &self.classes, "warn")
    }

    /// Main class of Kafka's dump tool, which moved with Kafka 4.3.
    pub fn dump_log_class(&self) -> &'static str {
        if self.version == KafkaVersion::V4 {
            "org.apache.kafka.tools.DumpLogSegments"
        } else {
            "kafka.tools.DumpLogSegments"
        }
    }

    /// Version of MirrorMaker that [`mirror_maker`](Self::mirror_maker) gives.
    pub fn mirror_maker_version() -> &'static str {
        MIRROR_MAKER
    }

    /// MirrorMaker's jars: from the cache, or through Maven into it.
    ///
    /// # Errors
    ///
    /// [`Skipped`] says what is missing.
    pub fn mirror_maker(&self) -> Result<MirrorMakerJars, Skipped> {
        let home = self.home.with_file_name(format!("mirror-maker-{MIRROR_MAKER}"));
        let cache = self.home.parent().unwrap_or(Path::new("."));
        let _lock = lock(cache)?;
        if !home.join("libs").is_dir() {
            resolve(MIRROR_MAKER, &pom_of(MIRROR_MAKER_COORDINATES), &home)?;
        }
        Ok(MirrorMakerJars(self.class_path_with(&home)))
    }

    /// Broker 4.3.1 with Kafka's own store of tiered segments in files, which it keeps for its
    /// tests: see [`TieredStore`](super::TieredStore).
    ///
    /// # Errors
    ///
    /// [`Skipped`] says what is missing.
    pub fn tiered(&self) -> Result<Self, Skipped> {
        let home = self.home.with_file_name(format!("tiered-{TIERED}"));
        let cache = self.home.parent().unwrap_or(Path::new("."));
        let _lock = lock(cache)?;
        if !home.join("libs").is_dir() {
            resolve(TIERED, &tiered_pom(), &home)?;
        }
        Ok(Self { home, ..self.clone() })
    }

    /// JVM options that point the version's logging library at a configuration that writes
    /// warnings to standard error (`quiet`), or everything from INFO on.
    pub(crate) fn logging(&self, quiet: bool) -> String {
        logging_option(self.version, &self.classes, if quiet { "warn" } else { "info" })
    }
}

fn logging_option(version: KafkaVersion, classes: &Path, level: &str) -> String {
    let (option, prefix) = if version == KafkaVersion::V4 {
        ("log4j2.configurationFile", "log4j2")
    } else {
        ("log4j.configuration", "log4j")
    };
    let file = classes.join(format!("{prefix}-{level}.properties"));
    format!("-D{option}=file:{}", file.display())
}

/// Makes `version` ready: from the cache, or through Maven into it.
///
/// The cache is `$HELIOSTAT_KAFKA_CACHE`, or `target/kafka` of the workspace; Java is that of
/// `$JAVA_HOME`, or of the search path. Costs milliseconds when the cache is filled; filling it
/// takes Maven's time and one start and stop of a broker, for the class-data archive.
///
/// # Errors
///
/// [`Skipped`] says what is missing.
pub fn require(version: KafkaVersion) -> Result<Artifacts, Skipped> {
    let jdk = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin"));
    let program = |name: &str| jdk.as_ref().map_or_else(|| name.into(), |bin| bin.join(name));
    let java: PathBuf = program("java");
    Command::new(&java)
        .arg("-version")
        .output()
        .map_err(|source| Skipped::NoJdk { program: java.clone(), source })?;

    let cache = std::env::var_os("HELIOSTAT_KAFKA_CACHE")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/kafka"), Into::into);
    make_dir(&cache)?;
    let cache = cache.canonicalize().map_err(cache_error(&cache))?;
    let _lock = lock(&cache)?;

    let home = cache.join(version.number());
    if !home.join("libs").is_dir() {
        resolve(version.number(), &pom_of(version.coordinates()), &home)?;
    }
    // The driver needs today's clients; a broker's JVM needs the launcher only.
    let driver_home = cache.join(KafkaVersion::V4.number());
    if !driver_home.join("libs").is_dir() {
        resolve(KafkaVersion::V4.number(), &pom_of(KafkaVersion::V4.coordinates()), &driver_home)?;
    }
    let classes = compile(&cache, &program, &driver_home.join("libs/*"))?;
    let artifacts = Artifacts { version, java, home, driver_home, classes };
    archive::prepare(&artifacts);
    Ok(artifacts)
}

/// [`require`] for a test: `None` after printing why the test is skipped.
///
/// # Panics
///
/// With `HELIOSTAT_REQUIRE_KAFKA=1`, where a skipped test is a failed one.
pub fn or_skip(version: KafkaVersion) -> Option<Artifacts> {
    found_or_skip(require(version))
}

/// The same for anything else that may not be here.
///
/// # Panics
///
/// As [`or_skip`].
#[expect(clippy::print_stderr, reason = "a skipped test says so where test output goes")]
#[expect(clippy::panic, reason = "the environment asks for a failure")]
pub fn found_or_skip<T>(found: Result<T, Skipped>) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(skipped) if std::env::var_os("HELIOSTAT_REQUIRE_KAFKA").is_some_and(|v| v == "1") => {
            panic!("HELIOSTAT_REQUIRE_KAFKA=1, but {skipped}")
        }
        Err(skipped) => {
            eprintln!("skipped: {skipped}");
            None
        }
    }
}

/// Two processes may want to fill the cache at once: one waits for the other.
fn lock(cache: &Path) -> Result<File, Skipped> {
    let path = cache.join("lock");
    let file = File::create(&path).map_err(cache_error(&path))?;
    file.lock().map_err(cache_error(&path))?;
    Ok(file)
}

/// Resolves beside `home` and renames, so that a half-filled directory is never taken for whole.
fn resolve(version: &'static str, text: &str, home: &Path) -> Result<(), Skipped> {
    let work = home.with_extension("partial");
    let _ = fs::remove_dir_all(&work);
    make_dir(&work)?;
    let pom = work.join("pom.xml");
    fs::write(&pom, text).map_err(cache_error(&pom))?;
    let run = Command::new("mvn")
        .args(["-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg("-DoutputDirectory=libs")
        .current_dir(&work)
        .output()
        .map_err(|source| Skipped::NoMaven { version, cache: home.into(), source })?;
    if !run.status.success() {
        let text = String::from_utf8_lossy(&run.stdout);
        let output = text.lines().take(12).collect::<Vec<_>>().join("\n");
        return Err(Skipped::NotResolved { version, output });
    }
    fs::rename(&work, home).map_err(cache_error(home))
}

/// The compiled sources.
const HARNESS_JAR: &str = "harness.jar";
/// Java sources and logging configurations that go with the classes.
const SOURCES: [(&str, &str); 2] = [
    ("Launcher.java", include_str!("java/Launcher.java")),
    ("Driver.java", include_str!("java/Driver.java")),
];

/// Compiles into a directory named after the sources' checksum, so that an edit is never missed
/// and an old process keeps its own.
fn compile(
    cache: &Path,
    program: &dyn Fn(&str) -> PathBuf,
    libs: &Path,
) -> Result<PathBuf, Skipped> {
    let configurations = logging_configurations();
    let mut sum = crc32fast::Hasher::new();
    for (_, text) in SOURCES {
        sum.update(text.as_bytes());
    }
    for (_, text) in &configurations {
        sum.update(text.as_bytes());
    }
    let classes = cache.join(format!("harness-{:08x}", sum.finalize()));
    if classes.is_dir() {
        return Ok(classes);
    }
    let work = cache.join("harness.partial");
    let _ = fs::remove_dir_all(&work);
    make_dir(&work)?;
    let mut javac = Command::new(program("javac"));
    javac.args(["--release", "17", "-nowarn", "-d", "classes"]).arg("-cp").arg(libs);
    for (name, text) in SOURCES {
        let path = work.join(name);
        fs::write(&path, text).map_err(cache_error(&path))?;
        javac.arg(name);
    }
    for (name, text) in configurations {
        let path = work.join(name);
        fs::write(&path, text).map_err(cache_error(&path))?;
    }
    run_tool(javac.current_dir(&work))?;
    let mut jar = Command::new(program("jar"));
    jar.args(["--create", "--file", HARNESS_JAR, "-C", "classes", "."]);
    run_tool(jar.current_dir(&work))?;
    fs::rename(&work, &classes).map_err(cache_error(&classes))?;
    Ok(classes)
}

fn run_tool(command: &mut Command) -> Result<(), Skipped> {
    let run = command
        .output()
        .map_err(|source| Skipped::NoJdk { program: command.get_program().into(), source })?;
    if run.status.success() {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&run.stderr).into_owned();
    Err(Skipped::NotCompiled { output })
}

fn logging_configurations() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for level in ["warn", "info"] {
        files.push((
            format!("log4j-{level}.properties"),
            format!(
                "log4j.rootLogger={level}, err\n\
                 log4j.appender.err=org.apache.log4j.ConsoleAppender\n\
                 log4j.appender.err.target=System.err\n\
                 log4j.appender.err.layout=org.apache.log4j.PatternLayout\n\
                 log4j.appender.err.layout.ConversionPattern=%d %p %m (%c)%n\n"
            ),
        ));
        files.push((
            format!("log4j2-{level}.properties"),
            format!(
                "status=error\n\
                 appender.err.type=Console\n\
                 appender.err.name=err\n\
                 appender.err.target=SYSTEM_ERR\n\
                 appender.err.layout.type=PatternLayout\n\
                 appender.err.layout.pattern=%d %p %m (%c)%n\n\
                 rootLogger.level={level}\n\
                 rootLogger.appenderRef.err.ref=err\n"
            ),
        ));
    }
    files
}

fn make_dir(path: &Path) -> Result<(), Skipped> {
    fs::create_dir_all(path).map_err(cache_error(path))
}

fn cache_error(path: &Path) -> impl FnOnce(io::Error) -> Skipped {
    let path = path.to_path_buf();
    move |source| Skipped::Cache { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_by_the_beginning_of_their_number() {
        assert_eq!("4".parse(), Ok(KafkaVersion::V4));
        assert_eq!("3.9.2".parse(), Ok(KafkaVersion::V3_9));
        assert_eq!("2".parse(), Ok(KafkaVersion::V2_8));
        assert!("3.".parse::<KafkaVersion>().is_err());
        assert!("".parse::<KafkaVersion>().is_err());
    }

    #[test]
    fn the_broker_is_the_first_dependency() {
        for version in KafkaVersion::ALL {
            let pom = pom_of(version.coordinates());
            let first = pom.split("<artifactId>").nth(2).unwrap();
            assert!(first.starts_with("kafka_2."), "{pom}");
        }
    }
}
