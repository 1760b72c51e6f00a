//! Workloads and services: what runs in the sites, from the keys of `[[workloads]]` and `[[services]]`.

use super::text::{
    AppText, CommandText, DirectionText, HttpText, ObjectiveText, ServiceApp, ServiceText, WorkloadText,
};
use bentpipe_apps::bulk::{Amount, BulkSpec};
use bentpipe_apps::ftp::FtpSpec;
use bentpipe_apps::page::{HttpVersion, PageSpec};
use bentpipe_apps::ping::PingSpec;
use bentpipe_apps::report::{App, Report};
use bentpipe_apps::service::{FtpService, HttpService, SinkService, SourceService};
use bentpipe_apps::{Direction, SpecError};
use bentpipe_net::content::{Content, ContentError};
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::time::Duration;
use bentpipe_net::units::{BitRate, Percent};
use std::net::IpAddr;

/// A program a user runs, and what is wanted of it.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// What it is.
    pub program: Program,
    /// The site that connects.
    pub client: String,
    /// The site that answers; a command may do without.
    pub server: Option<String>,
    /// When it starts.
    pub start: Duration,
    /// It starts at a moment of its own within this time after `start`, drawn from the seed. Zero: at `start`.
    pub spread: Duration,
    /// How often it runs, one run after the other.
    pub repeat: u32,
    /// Time between the runs.
    pub pause: Duration,
    /// What its data is made of.
    pub content: Content,
    /// Ends with the others instead of being waited for.
    pub background: bool,
    /// What is wanted.
    pub objective: Option<Objective>,
}

/// The programs.
#[derive(Clone, Debug)]
pub enum Program {
    /// ICMP echo.
    Ping(PingSpec),
    /// One TCP connection.
    Bulk(BulkSpec),
    /// Files over FTP.
    Ftp(FtpSpec),
    /// A web page.
    Page(PageSpec),
    /// Any program.
    Command(Vec<String>),
}

/// What is wanted of a workload.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Objective {
    /// Complete within this time.
    Within(Duration),
    /// At least this goodput.
    Goodput(BitRate),
    /// At most this loss.
    Loss(Percent),
}

/// A server that stays for real programs to talk to.
#[derive(Clone, Debug)]
pub struct Service {
    /// Where.
    pub site: String,
    /// What.
    pub program: ServiceProgram,
    /// What its data is made of.
    pub content: Content,
}

/// What a service is.
#[derive(Clone, Debug)]
pub enum ServiceProgram {
    /// One of ours, at a port.
    App(ServiceKind, u16),
    /// Any program.
    Command(Vec<String>),
}

/// Our services.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceKind {
    /// `GET /bytes/N` and a small page at `/`.
    Http,
    /// `RETR N.bin`, `STOR N.bin`.
    Ftp,
    /// Discards what it is sent (RFC 863).
    Sink,
    /// Sends as long as one reads (RFC 864).
    Source,
}

impl ServiceKind {
    fn usual_port(self) -> u16 {
        match self {
            ServiceKind::Http => 80,
            ServiceKind::Ftp => 21,
            ServiceKind::Sink => 9,
            ServiceKind::Source => 19,
        }
    }
}

impl Service {
    pub(super) fn from_text(text: &ServiceText) -> Result<Service, KeyProblem> {
        let program = match (text.app, &text.command) {
            (Some(app), None) => {
                let kind = match app {
                    ServiceApp::Http => ServiceKind::Http,
                    ServiceApp::Ftp => ServiceKind::Ftp,
                    ServiceApp::Sink => ServiceKind::Sink,
                    ServiceApp::Source => ServiceKind::Source,
                };
                let port = text.port.unwrap_or(kind.usual_port());
                if port == 0 {
                    return Err(KeyProblem::new("port", "0 is no port; allowed: 1 to 65535"));
                }
                ServiceProgram::App(kind, port)
            }
            (None, Some(command)) if text.port.is_none() && text.content.is_none() => {
                ServiceProgram::Command(argv(command)?)
            }
            (None, Some(_)) if text.content.is_some() => {
                return Err(KeyProblem::new("content", "is for app; a command chooses what it sends"));
            }
            (None, Some(_)) => return Err(KeyProblem::new("port", "is for app; a command chooses its own port")),
            _ => return Err(KeyProblem::new("app", "allowed: either app (http, ftp, sink, source) or command")),
        };
        Ok(Service { site: text.site.clone(), program, content: content(text.content.as_deref())? })
    }

    /// The program, for one of ours.
    #[must_use]
    pub fn app(&self, seed: u64) -> Option<Box<dyn App>> {
        let ServiceProgram::App(kind, port) = self.program else { return None };
        let seed = self.content.pattern(seed);
        Some(match kind {
            ServiceKind::Http => HttpService { port, seed }.server(),
            ServiceKind::Ftp => FtpService { port, seed }.server(),
            ServiceKind::Sink => SinkService { port }.server(),
            ServiceKind::Source => SourceService { port, seed }.server(),
        })
    }
}

fn content(text: Option<&str>) -> Result<Content, KeyProblem> {
    text.map_or(Ok(Content::default()), |text| {
        text.parse().map_err(|e: ContentError| KeyProblem::new("content", e.to_string()))
    })
}

/// The keys that only some programs know.
const OWN_KEYS: [(AppText, &[&str]); 5] = [
    (AppText::Ping, &["count", "interval", "bytes", "content", "timeout"]),
    (AppText::Bulk, &["direction", "bytes", "seconds", "content", "port", "timeout"]),
    (AppText::Ftp, &["direction", "bytes", "files", "sessions", "split", "content", "port", "timeout"]),
    (AppText::Page, &["direction", "bytes", "objects", "connections", "http", "path", "content", "port", "timeout"]),
    (AppText::Command, &["command", "timeout"]),
];

impl Workload {
    pub(super) fn from_text(text: &WorkloadText, number: usize) -> Result<Workload, KeyProblem> {
        let (_, own) = OWN_KEYS.iter().find(|(app, _)| *app == text.app).unwrap_or(&OWN_KEYS[0]);
        if let Some(key) = text.own_keys_set().into_iter().find(|key| !own.contains(key)) {
            let what = format!("is not for app = {:?}; allowed: {}", app_name(text.app), own.join(", "));
            return Err(KeyProblem::new(key, what));
        }
        let program = Program::from_text(text)?;
        if !matches!(program, Program::Command(_)) && text.server.is_none() {
            return Err(KeyProblem::new("server", "is missing; allowed: the site that answers"));
        }
        if text.server.as_ref() == Some(&text.client) {
            return Err(KeyProblem::new("server", "is the client itself; allowed: another site"));
        }
        let repeat = text.repeat.unwrap_or(1);
        if !(1..=10_000).contains(&repeat) {
            return Err(KeyProblem::new("repeat", format!("{repeat} is out of range; allowed: 1 to 10000")));
        }
        let objective = text.objective.as_ref().map(|o| Objective::from_text(o, &program)).transpose();
        Ok(Workload {
            name: text.name.clone().unwrap_or_else(|| format!("{} {}", app_name(text.app), number + 1)),
            program,
            client: text.client.clone(),
            server: text.server.clone(),
            start: text.start,
            spread: text.spread.unwrap_or_default(),
            repeat,
            pause: text.pause.unwrap_or_default(),
            content: content(text.content.as_deref())?,
            background: text.background,
            objective: objective.map_err(|p| p.under("objective"))?,
        })
    }

    /// `download`, `upload` or nothing.
    #[must_use]
    pub fn direction(&self) -> &'static str {
        let direction = match &self.program {
            Program::Bulk(spec) => spec.direction,
            Program::Ftp(spec) => spec.direction,
            Program::Page(_) => Direction::Download,
            Program::Ping(_) | Program::Command(_) => return "",
        };
        match direction {
            Direction::Download => "download",
            Direction::Upload => "upload",
        }
    }
}

impl WorkloadText {
    /// Which of the keys that not every program knows are set.
    fn own_keys_set(&self) -> Vec<&'static str> {
        let keys = [
            ("direction", self.direction.is_some()),
            ("bytes", self.bytes.is_some()),
            ("seconds", self.seconds.is_some()),
            ("count", self.count.is_some()),
            ("interval", self.interval.is_some()),
            ("files", self.files.is_some()),
            ("sessions", self.sessions.is_some()),
            ("split", self.split.is_some()),
            ("objects", self.objects.is_some()),
            ("content", self.content.is_some()),
            ("connections", self.connections.is_some()),
            ("http", self.http.is_some()),
            ("path", self.path.is_some()),
            ("port", self.port.is_some()),
            ("timeout", self.timeout.is_some()),
            ("command", self.command.is_some()),
        ];
        keys.into_iter().filter(|(_, set)| *set).map(|(key, _)| key).collect()
    }
}

/// The name as files write it.
fn app_name(app: AppText) -> &'static str {
    match app {
        AppText::Ping => "ping",
        AppText::Bulk => "bulk",
        AppText::Ftp => "ftp",
        AppText::Page => "page",
        AppText::Command => "command",
    }
}

impl Program {
    fn from_text(text: &WorkloadText) -> Result<Program, KeyProblem> {
        let direction = match text.direction {
            None | Some(DirectionText::Download) => Direction::Download,
            Some(DirectionText::Upload) => Direction::Upload,
        };
        let bytes = text.bytes.map(|size| size.bytes);
        Ok(match text.app {
            AppText::Ping => {
                let usual = PingSpec::default();
                let spec = PingSpec {
                    count: text.count.unwrap_or(usual.count),
                    interval: text.interval.unwrap_or(usual.interval),
                    data_bytes: bytes.map_or(usual.data_bytes, |b| usize::try_from(b).unwrap_or(usize::MAX)),
                    timeout: text.timeout.unwrap_or(usual.timeout),
                };
                spec.check().map_err(problem)?;
                Program::Ping(spec)
            }
            AppText::Bulk => {
                let amount = match (bytes, text.seconds) {
                    (Some(bytes), None) => Amount::Bytes(bytes),
                    (None, Some(time)) => Amount::Time(time),
                    _ => return Err(KeyProblem::new("bytes", "allowed: either bytes or seconds (a time)")),
                };
                let usual = BulkSpec::default();
                let timeout = text.timeout.or(usual.timeout);
                let port = text.port.unwrap_or(0);
                let spec = BulkSpec { direction, amount, port, timeout, ..usual };
                BulkSpec { port: port.max(1), ..spec.clone() }.check().map_err(problem)?;
                Program::Bulk(spec)
            }
            AppText::Ftp => {
                let usual = FtpSpec::default();
                let whole = bytes.ok_or_else(|| KeyProblem::new("bytes", "is missing; allowed: the size of a file"))?;
                let sessions = text.sessions.unwrap_or(usual.sessions);
                // XFTP (Kruse, ACTS): one file in as many parts as there are sessions, each over connections of its own.
                let split = text.split.unwrap_or(false);
                let spec = FtpSpec {
                    direction,
                    bytes: if split { whole.div_ceil(u64::from(sessions.max(1))) } else { whole },
                    files: text.files.unwrap_or(usual.files),
                    sessions,
                    spread: text.spread.unwrap_or_default(),
                    port: text.port.unwrap_or(0),
                    timeout: text.timeout.unwrap_or(usual.timeout),
                    ..usual
                };
                FtpSpec { port: spec.port.max(1), ..spec.clone() }.check().map_err(problem)?;
                Program::Ftp(spec)
            }
            AppText::Page => {
                if direction == Direction::Upload {
                    return Err(KeyProblem::new("direction", "a page is downloaded; allowed: \"download\""));
                }
                let usual = PageSpec::default();
                let objects = text.objects.as_ref().map_or_else(Vec::new, |o| o.iter().map(|s| s.bytes).collect());
                let version = match text.http {
                    Some(HttpText::Http10) => HttpVersion::Http10,
                    None | Some(HttpText::Http11) => HttpVersion::Http11,
                };
                let usual_connections = if version == HttpVersion::Http10 { 4 } else { 6 };
                // A page without objects is a single file of that size.
                let path = match (&text.path, bytes, objects.is_empty()) {
                    (Some(path), _, _) => path.clone(),
                    (None, Some(bytes), true) => format!("/bytes/{bytes}"),
                    _ => usual.path.clone(),
                };
                let spec = PageSpec {
                    html_bytes: bytes.unwrap_or(usual.html_bytes),
                    objects,
                    connections: text.connections.unwrap_or(usual_connections),
                    version,
                    port: text.port.unwrap_or(0),
                    path,
                    host: text.server.clone().unwrap_or(usual.host),
                    timeout: text.timeout.unwrap_or(usual.timeout),
                    sample_every: usual.sample_every,
                };
                PageSpec { port: spec.port.max(1), ..spec.clone() }.check().map_err(problem)?;
                Program::Page(spec)
            }
            AppText::Command => {
                let missing = || KeyProblem::new("command", "is missing; allowed: a shell line or [\"program\", …]");
                Program::Command(argv(text.command.as_ref().ok_or_else(missing)?)?)
            }
        })
    }

    /// The port its server listens on; 0: not chosen yet.
    fn port(&mut self) -> Option<(&mut u16, u16)> {
        match self {
            Program::Bulk(spec) => Some((&mut spec.port, 5001)),
            Program::Ftp(spec) => Some((&mut spec.port, 21)),
            Program::Page(spec) => Some((&mut spec.port, 80)),
            Program::Ping(_) | Program::Command(_) => None,
        }
    }

    /// The name as files write it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Program::Ping(_) => "ping",
            Program::Bulk(_) => "bulk",
            Program::Ftp(_) => "ftp",
            Program::Page(_) => "page",
            Program::Command(_) => "command",
        }
    }

    /// The side that connects; `None` for a command.
    #[must_use]
    pub fn client(&self, server: IpAddr, seed: u64) -> Option<Box<dyn App>> {
        match self {
            Program::Ping(spec) => Some(spec.client(server, seed)),
            Program::Bulk(spec) => Some(spec.client(server, seed)),
            Program::Ftp(spec) => Some(spec.client(server, seed)),
            Program::Page(spec) => Some(spec.client(server, seed)),
            Program::Command(_) => None,
        }
    }

    /// The side that answers, where the host's own stack does not.
    #[must_use]
    pub fn server(&self, seed: u64) -> Option<Box<dyn App>> {
        match self {
            Program::Ping(_) | Program::Command(_) => None,
            Program::Bulk(spec) => Some(spec.server(seed)),
            Program::Ftp(spec) => Some(spec.server(seed)),
            Program::Page(spec) => Some(spec.server(seed)),
        }
    }

    /// One report from both sides.
    #[must_use]
    pub fn combine(&self, client: Report, server: Option<Report>) -> Report {
        match (self, server) {
            (Program::Bulk(spec), Some(server)) => spec.combine(client, server),
            (Program::Ftp(spec), Some(server)) => spec.combine(client, server),
            (Program::Page(spec), Some(server)) => spec.combine(client, server),
            _ => client,
        }
    }
}

/// Gives every server a port of its own at its site, unless the file chose one.
pub(super) fn give_ports(workloads: &mut [Workload], services: &[Service]) -> Result<(), (usize, KeyProblem)> {
    let mut taken: Vec<(String, u16)> = services
        .iter()
        .filter_map(|service| match service.program {
            ServiceProgram::App(_, port) => Some((service.site.clone(), port)),
            ServiceProgram::Command(_) => None,
        })
        .collect();
    for chosen in [true, false] {
        for (i, workload) in workloads.iter_mut().enumerate() {
            let Some(server) = workload.server.clone() else { continue };
            let Some((port, usual)) = workload.program.port() else { continue };
            if chosen && *port != 0 {
                if taken.contains(&(server.clone(), *port)) {
                    return Err((i, KeyProblem::new("port", format!("{port} is taken at {server} already"))));
                }
                taken.push((server, *port));
            } else if !chosen && *port == 0 {
                *port = usual;
                while taken.contains(&(server.clone(), *port)) {
                    *port += 1;
                }
                taken.push((server, *port));
            }
        }
    }
    Ok(())
}

impl Objective {
    fn from_text(text: &ObjectiveText, program: &Program) -> Result<Objective, KeyProblem> {
        let objective = match (text.within, text.goodput, text.loss) {
            (Some(time), None, None) => Objective::Within(time),
            (None, Some(rate), None) => Objective::Goodput(rate),
            (None, None, Some(share)) => Objective::Loss(share),
            _ => return Err(KeyProblem::new("", "allowed: one of within, goodput and loss")),
        };
        let (key, fits) = match objective {
            Objective::Within(_) => ("within", !matches!(program, Program::Ping(_))),
            Objective::Goodput(_) => ("goodput", !matches!(program, Program::Ping(_) | Program::Command(_))),
            Objective::Loss(_) => ("loss", matches!(program, Program::Ping(_))),
        };
        if fits {
            return Ok(objective);
        }
        Err(KeyProblem::new(key, format!("cannot be told of app = {:?}", program.name())))
    }

    /// As the record states it.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Objective::Within(time) => format!("within {time}"),
            Objective::Goodput(rate) => format!("at least {rate}"),
            Objective::Loss(share) => format!("at most {share} lost"),
        }
    }
}

fn problem(error: SpecError) -> KeyProblem {
    let key = match error.field {
        "data_bytes" | "html_bytes" | "amount" => "bytes",
        other => other,
    };
    KeyProblem::new(key, error.message)
}

/// A shell line becomes `sh -c LINE`.
fn argv(command: &CommandText) -> Result<Vec<String>, KeyProblem> {
    match command {
        CommandText::Line(line) if !line.trim().is_empty() => {
            Ok(vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()])
        }
        CommandText::Words(words) if words.first().is_some_and(|word| !word.is_empty()) => Ok(words.clone()),
        _ => Err(KeyProblem::new("command", "is empty; allowed: a shell line or [\"program\", …]")),
    }
}
