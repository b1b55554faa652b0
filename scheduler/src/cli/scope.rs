//! Arguments that the commands of the operator share: about which pools, until when, and why.

use anyhow::Context as _;
use sunward_core::time::{Span, Timestamp};

use crate::api::overrides::OverrideRequest;

/// About which pools.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(multiple = false)]
pub(crate) struct ScopeArgs {
    /// This pool alone.
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// Every pool of this site.
    #[arg(long, value_name = "SITE")]
    site: Option<String>,
    /// Every pool of this federation.
    #[arg(long, value_name = "FEDERATION")]
    federation: Option<String>,
    /// Every pool.
    #[arg(long)]
    fleet: bool,
}

impl ScopeArgs {
    /// As the daemon writes it, `None` where none was given.
    pub(crate) fn text(&self) -> Option<String> {
        let named = [
            ("pool", &self.pool),
            ("site", &self.site),
            ("federation", &self.federation),
        ];
        let named = named
            .into_iter()
            .find_map(|(kind, name)| Some(format!("{kind}/{}", name.as_ref()?)));
        named.or_else(|| self.fleet.then(|| "fleet".to_owned()))
    }
}

/// Why, who and until when.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WhyArgs {
    /// Why: for whoever reads it at night.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Who answers for it; by default the name of the token.
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    #[command(flatten)]
    end: EndArgs,
    /// Names it; an override of the same id is replaced. By default the daemon makes one up.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

/// Until when: every override ends.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct EndArgs {
    /// For how long from now: 90s, 45m, 2h, 1d12h.
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    lasts: Option<String>,
    /// Until when, RFC 3339 with an offset: 2026-12-24T18:00:00+01:00.
    #[arg(long, value_name = "TIME", value_parser = stamp)]
    until: Option<String>,
}

impl WhyArgs {
    /// The request for this effect on this scope.
    pub(crate) fn request(
        self,
        scope: String,
        effect: &str,
        workers: Option<u32>,
    ) -> OverrideRequest {
        OverrideRequest {
            id: self.id,
            scope,
            effect: effect.to_owned(),
            workers,
            owner: self.owner,
            reason: self.reason,
            lasts: self.end.lasts,
            expires_at: self.end.until,
        }
    }
}

/// A length of time, as the daemon reads it.
fn span(text: &str) -> anyhow::Result<String> {
    Span::parse(text).context("not a length of time")?;
    Ok(text.to_owned())
}

/// An instant, as the daemon reads it.
pub(crate) fn stamp(text: &str) -> anyhow::Result<String> {
    Timestamp::parse_rfc3339(text).context("not an instant")?;
    Ok(text.to_owned())
}
