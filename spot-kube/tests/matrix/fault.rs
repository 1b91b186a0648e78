//! What can go wrong at one request.

use crate::request::Asked;
use crate::server::Received;
use crate::status::Answer;

/// What goes wrong at a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Answered so, without effect.
    Says(No),
    /// Never answered, without effect.
    Hangs,
    /// The connection breaks, without effect.
    Reset,
    /// It has its effect, and is never answered.
    AnswerLost,
    /// It has its effect, and the connection breaks.
    AnswerReset,
    /// It has its effect when nobody waits for the answer any more.
    Late,
    /// The process dies before the effect.
    KilledBefore,
    /// The process dies after the effect.
    KilledAfter,
    /// The watch breaks instead of showing this event, counted from 0.
    Breaks(usize, Break),
}

/// How a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum No {
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 409.
    Conflict,
    /// 410.
    Expired,
    /// 429 of an overloaded server.
    Overloaded,
    /// 429 with a budget's cause; of evictions only.
    Budget,
    /// 500.
    ServerError,
    /// 503.
    Unavailable,
}

/// How a watch breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// The connection breaks.
    Reset,
    /// The connection breaks in the middle of an event.
    Torn,
    /// It is closed in order.
    Closed,
    /// It says 410 Gone.
    Gone,
    /// Nothing more comes.
    Silence,
}

impl Fault {
    /// Whether this request can go wrong so.
    pub(crate) fn concerns(self, request: &Received) -> bool {
        let Some(asked) = &request.asked else { return false };
        match self {
            Self::Says(No::Budget) => matches!(asked, Asked::Evict { .. }),
            Self::Breaks(event, _) => event < request.events,
            // A watch has no effect, and so nothing that comes before or after it.
            Self::AnswerLost | Self::AnswerReset | Self::Late | Self::KilledAfter => !matches!(asked, Asked::Watch(_)),
            Self::Says(_) | Self::Hangs | Self::Reset | Self::KilledBefore => true,
        }
    }
}

impl No {
    pub(crate) fn answer(self) -> Answer {
        match self {
            Self::Unauthorized => Answer::no(401, "Unauthorized", "Unauthorized"),
            Self::Forbidden => {
                Answer::no(403, "Forbidden", "admission webhook \"guard.example.com\" denied the request")
            }
            Self::Conflict => Answer::modified("objects", "it"),
            Self::Expired => Answer::no(410, "Expired", "The resourceVersion for the provided watch is too old."),
            Self::Overloaded => {
                let message = "too many requests, please try again later";
                Answer::no(429, "TooManyRequests", message).later(1)
            }
            // One that was created this moment, so that no view shows it.
            Self::Budget => Answer::held_by_a_budget("new-guard"),
            Self::ServerError => Answer::no(500, "InternalError", "etcdserver: request timed out"),
            Self::Unavailable => Answer::no(503, "ServiceUnavailable", "apiserver is shutting down"),
        }
    }
}
