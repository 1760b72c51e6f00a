//! The quantities that the workloads of this crate measure. Where each is measured, and from when, stands with its
//! workload.

pub use bentpipe_net::quantity::{Better, Quantity, Unit};

/// From the start until everything had happened.
pub const COMPLETION_TIME: Quantity = Quantity::lower("completion_time", Unit::Seconds);
/// Application data received per time, from the start on.
pub const GOODPUT: Quantity = Quantity::higher("goodput", Unit::BitsPerSecond);
/// The same without the start of a transfer.
pub const GOODPUT_STEADY: Quantity = Quantity::higher("goodput_steady", Unit::BitsPerSecond);
/// The mean of the sessions' goodput.
pub const GOODPUT_PER_SESSION: Quantity = Quantity::higher("goodput_per_session", Unit::BitsPerSecond);
/// From the start until the first byte of data arrived.
pub const FIRST_BYTE: Quantity = Quantity::lower("first_byte", Unit::Seconds);
/// From the call to connect until the connection was open.
pub const CONNECT_TIME: Quantity = Quantity::lower("connect_time", Unit::Seconds);
/// Bytes of data received.
pub const BYTES: Quantity = Quantity::neutral("bytes", Unit::Bytes);
/// Bytes received that are not those that were sent.
pub const WRONG_BYTES: Quantity = Quantity::lower("wrong_bytes", Unit::Bytes);
/// Series: bytes received so far.
pub const RECEIVED_BYTES: Quantity = Quantity::neutral("received", Unit::Bytes);

/// Requests sent.
pub const SENT: Quantity = Quantity::neutral("sent", Unit::Number);
/// Requests answered.
pub const RECEIVED: Quantity = Quantity::neutral("received", Unit::Number);
/// Requests that may still be answered.
pub const PENDING: Quantity = Quantity::neutral("pending", Unit::Number);
/// Requests that were not answered, as a share.
pub const LOSS: Quantity = Quantity::lower("loss", Unit::Share);
/// Further replies to an answered request.
pub const DUPLICATES: Quantity = Quantity::lower("duplicates", Unit::Number);
/// Replies whose data are not what was sent.
pub const DAMAGED: Quantity = Quantity::lower("damaged", Unit::Number);
/// Replies to no request.
pub const UNKNOWN: Quantity = Quantity::lower("unknown", Unit::Number);
/// Series: round-trip time.
pub const RTT: Quantity = Quantity::lower("rtt", Unit::Seconds);
/// The shortest round trip.
pub const RTT_MIN: Quantity = Quantity::lower("rtt_min", Unit::Seconds);
/// The mean round trip.
pub const RTT_MEAN: Quantity = Quantity::lower("rtt_mean", Unit::Seconds);
/// The median round trip.
pub const RTT_MEDIAN: Quantity = Quantity::lower("rtt_median", Unit::Seconds);
/// The 99th percentile of the round trips.
pub const RTT_P99: Quantity = Quantity::lower("rtt_p99", Unit::Seconds);
/// The longest round trip.
pub const RTT_MAX: Quantity = Quantity::lower("rtt_max", Unit::Seconds);
/// The mean difference between one round trip and the next.
pub const RTT_JITTER: Quantity = Quantity::lower("rtt_jitter", Unit::Seconds);

/// Files transferred.
pub const FILES_DONE: Quantity = Quantity::higher("files_done", Unit::Number);
/// Files not transferred.
pub const FILES_FAILED: Quantity = Quantity::lower("files_failed", Unit::Number);
/// The mean over the sessions of the time that their dialogue before the first file took.
pub const CONTROL_TIME: Quantity = Quantity::lower("control_time", Unit::Seconds);
/// The longest session.
pub const SESSION_TIME_MAX: Quantity = Quantity::lower("session_time_max", Unit::Seconds);
/// Sessions that a server accepted.
pub const SESSIONS: Quantity = Quantity::neutral("sessions", Unit::Number);

/// From the start until the page itself was complete.
pub const HTML_TIME: Quantity = Quantity::lower("html_time", Unit::Seconds);
/// The mean time that an object took.
pub const OBJECT_TIME_MEAN: Quantity = Quantity::lower("object_time_mean", Unit::Seconds);
/// The longest time that an object took.
pub const OBJECT_TIME_MAX: Quantity = Quantity::lower("object_time_max", Unit::Seconds);
/// Objects that are complete.
pub const OBJECTS_DONE: Quantity = Quantity::higher("objects_done", Unit::Number);
/// Objects that will not be complete.
pub const OBJECTS_FAILED: Quantity = Quantity::lower("objects_failed", Unit::Number);
/// Connections that a client opened.
pub const CONNECTIONS_OPENED: Quantity = Quantity::neutral("connections_opened", Unit::Number);
/// Connections that a server accepted.
pub const CONNECTIONS: Quantity = Quantity::neutral("connections", Unit::Number);
/// Requests that a server answered.
pub const REQUESTS: Quantity = Quantity::neutral("requests", Unit::Number);

/// Keys typed.
pub const KEYS: Quantity = Quantity::neutral("keys", Unit::Number);
/// Keys whose echo came.
pub const ECHOED: Quantity = Quantity::higher("echoed", Unit::Number);
/// Characters received that were neither typed nor written.
pub const WRONG_CHARACTERS: Quantity = Quantity::lower("wrong_characters", Unit::Number);
/// Keys typed that were neither echoed nor received.
pub const LOST_CHARACTERS: Quantity = Quantity::lower("lost_characters", Unit::Number);
/// Lines typed.
pub const LINES: Quantity = Quantity::neutral("lines", Unit::Number);
/// Series: echo time.
pub const ECHO: Quantity = Quantity::lower("echo", Unit::Seconds);
/// The median echo time.
pub const ECHO_MEDIAN: Quantity = Quantity::lower("echo_median", Unit::Seconds);
/// The 95th percentile of the echo times.
pub const ECHO_P95: Quantity = Quantity::lower("echo_p95", Unit::Seconds);
/// The 99th percentile of the echo times.
pub const ECHO_P99: Quantity = Quantity::lower("echo_p99", Unit::Seconds);
/// The longest echo time.
pub const ECHO_MAX: Quantity = Quantity::lower("echo_max", Unit::Seconds);
/// The median time from Enter to the end of what the line caused.
pub const LINE_MEDIAN: Quantity = Quantity::lower("line_median", Unit::Seconds);
/// The 95th percentile of these times.
pub const LINE_P95: Quantity = Quantity::lower("line_p95", Unit::Seconds);
/// Segments sent and received by the client's connection, per line.
pub const PACKETS_PER_LINE: Quantity = Quantity::lower("packets_per_line", Unit::Number);
