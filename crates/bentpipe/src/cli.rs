//! The command line, defined once: help, man pages and completions come from here.

use bentpipe_net::time::Duration;
use bentpipe_net::units::DataSize;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// The exit status of `get` and `put`, for their help.
macro_rules! transfer_status {
    () => {
        "Exit status: 0 done; 1 a transfer failed and may go on later; 2 bad input, nothing was started; 4 the server will \
not (not found, not allowed, no certificate to trust, no such protocol); 5 this machine cannot (disk full, file exists, another process \
has it); 6 what came was wrong (digest, or it kept changing) and is removed; 130 ended by Ctrl-C."
    };
}

/// Put any application on any satellite link, and measure what its users would feel.
#[derive(Debug, Parser)]
#[command(name = "bentpipe", version, max_term_width = 100)]
#[command(
    after_help = "Exit status: 0 done, whatever a run's workloads met with (its record tells); 1 bentpipe itself failed; \
2 bad input, nothing was started; 3 a run was later than its limits and is invalid; 130 ended by Ctrl-C. `shell` passes its command's status through."
)]
pub struct Cli {
    /// The command
    #[command(subcommand)]
    pub command: Command,
}

/// The command
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the catalogue of links, or explain one
    Links {
        /// The action; list if omitted
        #[command(subcommand)]
        action: Option<LinksAction>,
    },
    /// List the TCP presets for [hosts.X.tcp]
    Presets,
    /// Say what the analytic models of TCP predict for a transfer
    Predict(PredictArguments),
    /// Say what to set on ordinary hosts for a link, why, and what it gains
    Tune(TuneArguments),
    /// Run a shell, or one command, behind a satellite link
    Shell(ShellArguments),
    /// Run a scenario's workloads over real packets or in virtual time; leave a record and a report
    Run(RunArguments),
    /// Run a scenario in virtual time over a grid of settings and several seeds
    Sweep(SweepArguments),
    /// List the experiments, or run some and hold them against the papers they are from
    Experiments(ExperimentsArguments),
    /// Fetch files over FTP or HTTP with several connections at once; resume what was interrupted
    Get(GetArguments),
    /// Send files over FTP or HTTP; resume what was interrupted
    Put(PutArguments),
    /// Write the report of a record again
    Report(ReportArguments),
    /// Compare live runs with simulated ones, scenario by scenario
    Parity(ParityArguments),
    /// Run one of the two gateways of a link, or make its key
    Gateway {
        /// Which one, or the key
        #[command(subcommand)]
        action: GatewayAction,
    },
    /// Print a completion script
    Completions {
        /// The shell to complete in
        shell: clap_complete::Shell,
    },
    /// Write the man pages
    Man {
        /// Folder to write to
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        out: PathBuf,
    },
}

/// The action on a gateway
#[derive(Debug, Subcommand)]
pub enum GatewayAction {
    /// Run the gateway of the well-connected side, until a signal ends it
    Hub(GatewayArguments),
    /// Run the gateway of the remote side, until a signal ends it
    Terminal(GatewayArguments),
    /// Make a gateway's private key, or show the public one that belongs to it
    Keys(KeysArguments),
    /// Say what the calls of a gateway that dials have cost
    Cost(CostArguments),
}

/// Run a gateway
///
/// SIGTERM or SIGINT ends it once its connections have ended or the time for that is over, a second one at once; SIGHUP
/// reads the link's rate from the file again. docs/reference/gateway.md explains the file.
#[derive(Debug, Args)]
pub struct GatewayArguments {
    /// The gateway's file
    #[arg(value_name = "FILE.toml", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Only say whether the file is right
    #[arg(long)]
    pub check: bool,
    /// The format of log lines; they go to standard error
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log: LogFormat,
}

/// The format of log lines
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// Make or show a key
#[derive(Debug, Args)]
#[command(after_help = "Prints the public key, which belongs into the other gateway's file as peer_key.")]
pub struct KeysArguments {
    /// Make a new private key in this file, which must not exist
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "show")]
    pub out: Option<PathBuf>,
    /// Show the public key of this private one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub show: Option<PathBuf>,
}

/// Say what calls have cost
///
/// Reads the ledger that the terminal's file names, at any time, also while the gateway runs.
#[derive(Debug, Args)]
pub struct CostArguments {
    /// The terminal gateway's file
    #[arg(value_name = "FILE.toml", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Print JSON, amounts in billionths
    #[arg(long)]
    pub json: bool,
}

/// The action on the catalogue
#[derive(Debug, Subcommand)]
pub enum LinksAction {
    /// Explain one link: every value, with its source
    Show {
        /// A name from the catalogue, or a link file
        #[arg(value_name = "LINK")]
        link: String,
        /// Override a field, such as 'one_way_delay=250 ms'; may be given several times
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
    },
}

/// Say what the analytic models of TCP and the simulator predict for a transfer
///
/// The client is at the terminal, the server at the hub. Nothing is sent: these are formulas, each with its source, fed
/// with what the link and the TCP settings say, and the same transfer in virtual time. docs/reference/models.md
/// explains them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bentpipe predict acts-t1 --tcp windows-95 --bytes '5 MB'\n  \
bentpipe predict geo-two-way --tcp tcp-lfn --set noise=1e-6 --set 'tcp.receive_window=64 KiB' --bytes '50 MB'")]
pub struct PredictArguments {
    /// A name from the catalogue (`bentpipe links`), or a link file
    #[arg(value_name = "LINK")]
    pub link: String,
    /// Override a field of the link ('one_way_delay=250 ms') or of TCP ('tcp.receive_window=64 KiB'); may be given
    /// several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// TCP preset of both sides (`bentpipe presets`)
    #[arg(long, value_name = "PRESET", default_value = "linux")]
    pub tcp: String,
    /// Size of the transfer
    #[arg(long, value_name = "SIZE", default_value = "1 MB")]
    pub bytes: DataSize,
    /// Share of data segments lost, such as 0.01 or '1 %', instead of what the link's errors make
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub loss: Option<f64>,
    /// Which way the data goes
    #[arg(long, value_enum, default_value_t = TransferDirection::Download)]
    pub direction: TransferDirection,
    /// Connections that share the transfer
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub connections: u32,
    /// Only closed forms: leave out the simulated transfer
    #[arg(long)]
    pub formulas_only: bool,
    /// Print JSON instead of the table
    #[arg(long)]
    pub json: bool,
}

/// Say what to set on ordinary hosts for a link, why, and what it gains
///
/// Closed forms say what could help; the simulator says what does, for transfers of several sizes both ways. What helps is
/// printed as commands for Linux, at the host that they belong to; what does not help, or Linux cannot set, is said.
/// docs/explanation/tuning.md explains it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  bentpipe tune acts-t1\n  bentpipe tune iperspace --tcp windows-95 --direction download --verify\n  \
bentpipe tune geo-50-5 --set noise=1e-7 --bytes '1 MB' --bytes '20 MB' --json\n\nExit status: 0 done; 1 --verify could not measure; 2 bad input; 3 a run of --verify was \
later than its limits; 130 ended by Ctrl-C."
)]
pub struct TuneArguments {
    /// A name from the catalogue (`bentpipe links`), or a link file
    #[arg(value_name = "LINK")]
    pub link: String,
    /// Override a field of the link ('one_way_delay=250 ms') or of both hosts' TCP as it is now ('tcp.syn_retries=3');
    /// may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Both hosts as they are now (`bentpipe presets`)
    #[arg(long, value_name = "PRESET", default_value = "linux")]
    pub tcp: String,
    /// Size of a transfer to tune for, up to eight; by default three that suit the link
    #[arg(long, value_name = "SIZE")]
    pub bytes: Vec<DataSize>,
    /// Tune for data that goes this way; by default for both
    #[arg(long, value_enum)]
    pub direction: Option<TransferDirection>,
    /// Connections that share a transfer
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub connections: u32,
    /// Measure the gain: real packets between real kernels, before and after the commands
    #[arg(long)]
    pub verify: bool,
    /// Print JSON instead of the tables
    #[arg(long)]
    pub json: bool,
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransferDirection {
    /// From the hub to the terminal
    Download,
    /// From the terminal to the hub
    Upload,
}

/// Reads `0.01` or `1 %`.
fn share(text: &str) -> Result<f64, String> {
    let value = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.trim().parse(),
    };
    match value {
        Ok(share) if (0.0..1.0).contains(&share) => Ok(share),
        _ => Err("allowed: 0 to less than 1, such as 0.01, or a percentage below 100, such as '1 %'".to_owned()),
    }
}

/// Run a shell, or one command, behind a satellite link
///
/// The command runs at the terminal side; the hub side answers pings and can run a command too. The sites are called
/// `hub` and `terminal` (`ping hub`), and BENTPIPE_HUB and BENTPIPE_TERMINAL hold their addresses. No root is needed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bentpipe shell geo-two-way -- ping -c 3 hub\n  \
bentpipe shell acts-t1 --set 'noise=1e-5' --hub 'python3 -m http.server 80' -- curl -s http://hub/")]
pub struct ShellArguments {
    /// A name from the catalogue (`bentpipe links`), or a link file
    #[arg(value_name = "LINK")]
    pub link: String,
    /// Override a field of the link, such as 'one_way_delay=250 ms'; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// A command line to run at the hub for as long as the shell lasts; its output goes to standard error. The shell starts
    /// once it listens on a port, or after 3 s
    #[arg(long, value_name = "COMMAND")]
    pub hub: Option<String>,
    /// Give the terminal side the machine's own network, through the link (needs Debian's passt and nftables)
    #[arg(long)]
    pub internet: bool,
    /// With --internet: also reach what listens on this machine's loopback (127.0.0.1), at 198.19.255.254
    #[arg(long, requires = "internet")]
    pub host_loopback: bool,
    /// TCP preset of both sides (`bentpipe presets`)
    #[arg(long, value_name = "PRESET")]
    pub tcp: Option<String>,
    /// Seed of every random stream
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Capture both ends of the link
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub pcap: Option<PathBuf>,
    /// Do not print what the link carried when the shell ends
    #[arg(long, short)]
    pub quiet: bool,
    /// The command and its arguments; without them, your shell
    #[arg(value_name = "COMMAND", last = true)]
    pub command: Vec<OsString>,
}

/// Run a scenario's workloads over real packets or in virtual time; leave a record and a report
///
/// With --virtual, simulated hosts do what the scenario asks, as fast as this machine computes it: nothing is real but the
/// links' and workloads' code, no rights are needed, and two runs leave the same record, byte for byte.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// The scenario
    #[arg(value_name = "SCENARIO.toml", value_hint = ValueHint::FilePath)]
    pub scenario: PathBuf,
    /// Folder for record.json and report.html; by default runs/NAME-DATE-TIME
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Simulate in virtual time instead of moving real packets
    #[arg(long = "virtual")]
    pub virtual_time: bool,
    /// Run every case twice, without and with a gateway pair, and show both side by side. The pair is the scenario's own,
    /// or one with the default settings on the link with the longest round trip
    #[arg(long, value_name = "WHAT", value_enum)]
    pub compare: Option<Compare>,
    /// With --virtual: leave out commands, which only a live run can run
    #[arg(long, requires = "virtual_time")]
    pub skip_live: bool,
    /// Override a key, such as 'links.sat.one_way_delay=250 ms' or 'workloads.image.bytes=1 MB'
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Run only this case; may be given several times
    #[arg(long = "case", value_name = "NAME")]
    pub cases: Vec<String>,
    /// Run with so many seeds, one after the other: the scenario's and those after it. Each run leaves its results in
    /// DIR/seed-SEED; the table and DIR/summary.csv have medians, and means with 99 % confidence intervals
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seeds: Option<u32>,
    /// Capture every port of every case, as CASE.pcapng in the folder
    #[arg(long)]
    pub pcap: bool,
    /// Keep every point of every series in the record. By default a record has at most 2000 of each and 500,000 of all:
    /// the least and the largest value of each part of a series stay
    #[arg(long)]
    pub raw_series: bool,
    /// Print the record (with --seeds: the summary) as JSON instead of the table
    #[arg(long)]
    pub json: bool,
    /// Only check the scenario
    #[arg(long)]
    pub check: bool,
}

/// The comparison of a run
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compare {
    /// Without and with a gateway pair
    Gateway,
}

/// Run a scenario in virtual time over a grid of settings and several seeds
///
/// Every combination of the --vary options is one point; each point runs with several seeds. The folder gets
/// results.parquet (one row a measurement) and summary.csv (means with confidence intervals). Whatever ends a sweep early,
/// the same command continues it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  bentpipe sweep scenarios/sweep.toml --vary 'links.sat.noise.ratio=1e-9..1e-3 log 13' \\\n      \
--vary 'hosts.*.tcp.receive_window=8KiB,64KiB,1MiB' --seeds 10 --out runs/noise\n  \
bentpipe sweep scenarios/sweep.toml --vary 'links.sat.one_way_delay=10 ms..500 ms lin 5' \\\n      \
--until goodput=2% --out runs/delay\n\nExit status: 0 done; 1 a run could not be done, or the folder not be written; 2 bad input, nothing was started; \
130 ended by Ctrl-C."
)]
pub struct SweepArguments {
    /// The scenario
    #[arg(value_name = "SCENARIO.toml", value_hint = ValueHint::FilePath)]
    pub scenario: PathBuf,
    /// A key and its values: KEY=a,b,c or KEY=a..b log N or KEY=a..b lin N; hosts.*.KEY sets it at every site. May be given
    /// several times
    #[arg(long, value_name = "KEY=VALUES")]
    pub vary: Vec<String>,
    /// Override a key at every point, as `bentpipe run` does
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Seeds of each point: the scenario's and those after it
    #[arg(long, value_name = "N", default_value_t = 10, conflicts_with = "until")]
    pub seeds: u32,
    /// Run each point until the half-width of this measurement's confidence interval is below a share of the mean
    /// (goodput=2%) or a value ('completion_time=0.1 s'), for every workload. May be given several times: all must hold
    #[arg(long, value_name = "MEASUREMENT=LIMIT")]
    pub until: Vec<String>,
    /// With --until: at least so many seeds
    #[arg(long, value_name = "N", default_value_t = 5, requires = "until")]
    pub seeds_min: u32,
    /// With --until: at most so many seeds
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "until")]
    pub seeds_max: u32,
    /// Measure these counters of links and hosts too, such as dropped_packets,utilization,pure_acks
    #[arg(long, value_name = "COUNTER", value_delimiter = ',')]
    pub measure: Vec<String>,
    /// Of the confidence intervals, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0)]
    pub confidence: f64,
    /// Folder for the results; by default runs/NAME-sweep
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Runs at a time; by default one for each core
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Do only this part of the runs, such as 3/16, and write no results; --merge joins the parts
    #[arg(long, value_name = "PART/PARTS")]
    pub shard: Option<String>,
    /// Take over the runs of another folder of the same sweep, such as a shard's; may be given several times
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub merge: Vec<PathBuf>,
    /// Print the summary as JSON instead of the table
    #[arg(long)]
    pub json: bool,
    /// Only check, and say how many runs it would be
    #[arg(long)]
    pub check: bool,
}

/// List the experiments, or run some and hold them against the papers they are from
///
/// An experiment is a folder with a scenario and what a paper published about it. docs/reference/experiments.md states
/// the rules.
#[derive(Debug, Args)]
pub struct ExperimentsArguments {
    /// Where the experiments are
    #[arg(long, value_name = "DIR", default_value = "experiments", value_hint = ValueHint::DirPath, global = true)]
    pub folder: PathBuf,
    /// The action; list if omitted
    #[command(subcommand)]
    pub action: Option<ExperimentsAction>,
}

/// The action on the experiments
#[derive(Debug, Subcommand)]
pub enum ExperimentsAction {
    /// List them with their papers and the numbers of their results
    List,
    /// Run some, or all, and print what was published and what is measured
    Run(ExperimentsRunArguments),
}

/// Run some, or all, and print what was published and what is measured
///
/// In virtual time, on every core, each point as often as its scenario asks for. A verdict is within, outside, trend
/// holds, or cannot be compared; the exit status does not depend on them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bentpipe experiments run kruse-xftp --out runs/kruse\n  \
bentpipe experiments run all --markdown > docs/results.md")]
pub struct ExperimentsRunArguments {
    /// Names from the list, or all
    #[arg(value_name = "ID|all", required = true)]
    pub ids: Vec<String>,
    /// With real packets, every point once, one after another: this takes as long as the transfers take
    #[arg(long)]
    pub live: bool,
    /// Folder for results.json and report.html of each experiment
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Runs at a time; by default one for each core. Live runs go one at a time
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Print JSON instead of the table
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
    /// Print the table as docs/results.md has it
    #[arg(long)]
    pub markdown: bool,
}

/// Fetch files over FTP or HTTP with several connections at once; resume what was interrupted
///
/// Any ordinary server will do: the file is fetched in pieces, by REST and RETR or by range requests. The same command
/// goes on where an earlier one was interrupted. A file gets its name when it is whole; until then it is
/// .NAME.bentpipe-part. docs/reference/transfers.md explains.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n  bentpipe get https://example.org/image.iso --digest sha256:…\n  \
bentpipe get ftp://example.org/a ftp://example.org/b --link geo-two-way\n\n", transfer_status!()))]
pub struct GetArguments {
    /// URLs to fetch: ftp://, http:// or https://; several are fetched one after another
    #[arg(value_name = "URL", required = true, value_hint = ValueHint::Url)]
    pub url: Vec<String>,
    /// Name or folder for the file; by default the URL's last part, here
    #[arg(long, short, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    pub output: Option<PathBuf>,
    /// Connections at once; by default as many as bring more
    #[arg(long, short = 'n', value_name = "N", conflicts_with = "link", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub connections: Option<u16>,
    /// Choose the connections for a link of the catalogue: its bandwidth-delay product ÷ the window
    #[arg(long, value_name = "LINK")]
    pub link: Option<String>,
    /// With --link: the window of one connection, the smaller of the server's and this machine's
    #[arg(long, value_name = "SIZE", default_value = "64 KiB", requires = "link")]
    pub window: DataSize,
    /// The expected digest of the file: sha256:HEX or sha512:HEX
    #[arg(long, value_name = "DIGEST")]
    pub digest: Option<String>,
    /// Replace a file of the same name
    #[arg(long)]
    pub overwrite: bool,
    /// Options of the transfer
    #[command(flatten)]
    pub common: TransferArguments,
}

/// Send files over FTP or HTTP; resume what was interrupted
///
/// FTP: several files at once, one connection each; the same command goes on where an earlier one was interrupted.
/// HTTP: PUT.
#[derive(Debug, Args)]
#[command(after_help = concat!("Example:\n  bentpipe put *.jpg ftp://user:password@example.org/incoming/\n\n", transfer_status!()))]
pub struct PutArguments {
    /// The files, then where to: a folder (ending in a slash), or for one file its name there
    #[arg(value_name = "FILE… URL", required = true, num_args = 2.., value_hint = ValueHint::AnyPath)]
    pub what: Vec<OsString>,
    /// Files at once
    #[arg(long, short = 'n', value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub connections: u16,
    /// Options of the transfer
    #[command(flatten)]
    pub common: TransferArguments,
}

/// Arguments that `get` and `put` share
#[derive(Debug, Args)]
pub struct TransferArguments {
    /// Nothing moving for so long ends an attempt
    #[arg(long, value_name = "TIME", default_value = "60 s")]
    pub timeout: Duration,
    /// Attempts in a row that bring nothing new before giving up, with growing pauses between them
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub retries: u32,
    /// Trust the certificates in this PEM file instead of the public ones
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ca: Option<PathBuf>,
    /// Print what happened as JSON, one object a line
    #[arg(long)]
    pub json: bool,
    /// No progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// Write the report of a record again
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// The record.json that a run left, or its folder
    #[arg(value_name = "RECORD", value_hint = ValueHint::AnyPath)]
    pub record: PathBuf,
    /// Where to write the HTML report; by default report.html in the record's folder
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Print the record as JSON of the current version instead; no report is written unless --out names one
    #[arg(long)]
    pub json: bool,
}

/// Compare live runs with simulated ones, scenario by scenario
///
/// Each scenario of the list runs against the kernel and in the simulator with the same settings. Without errors the means
/// must agree within 3 %; with errors the 95 % confidence interval of live ÷ virtual must lie within ±5 %, and live
/// runs are added until that is decided. A live run that was late is repeated, never used.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 all agree; 1 one differs, is undecided or could not run; 2 bad input.")]
pub struct ParityArguments {
    /// The list of scenarios (FILE.toml; by default scenarios/parity/parity.toml), and names from it; without names, all
    #[arg(value_name = "FILE.toml|NAME", value_hint = ValueHint::AnyPath)]
    pub what: Vec<String>,
    /// Instead of a list: so many random scenarios
    #[arg(long, value_name = "N", conflicts_with = "what", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub random: Option<u32>,
    /// With --random: the seed that the scenarios follow from
    #[arg(long, value_name = "S", default_value_t = 1, requires = "random")]
    pub seed: u64,
    /// Run one side only
    #[arg(long, value_name = "SIDE")]
    pub only: Option<Side>,
    /// Most live runs of one scenario
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub max_rounds: u32,
    /// Folder for the samples of both sides
    #[arg(long, value_name = "DIR", default_value = "runs/parity", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
    /// Begin with the live samples in this folder; live runs are added only where they do not decide
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub live_from: Option<PathBuf>,
    /// Print the table as JSON
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
    /// Print the table as Markdown
    #[arg(long)]
    pub markdown: bool,
}

/// A side of the comparison
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Side {
    /// In the simulator
    Virtual,
    /// Against the kernel
    Live,
}
