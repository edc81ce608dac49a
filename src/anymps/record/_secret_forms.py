"""Secrets recognised by their form: keys of services, URLs that work like keys, headers, PEM blocks.

The rules are kept here and not taken from a library. The one library of such rules for Python, detect-secrets 1.5
(Apache-2.0), finds no key of Hugging Face, Anthropic, Google or Weights & Biases and no fine-grained one of GitHub, and
needs `requests`, which a recording would then load. A test holds this list to its rules instead: what detect-secrets
finds by its form is hidden here, too.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

HIDDEN: Final = "***"
"""What stands in the place of a secret."""

SERVICES: Final = MappingProxyType(
    {
        # Models and their training.
        "Hugging Face": r"hf_(?:[A-Za-z0-9]{30,}|(?=[a-z]{0,60}[A-Z0-9])[A-Za-z0-9]{16,})|api_org_[A-Za-z0-9]{30,}",
        "OpenAI, Anthropic, DeepSeek, OpenRouter": r"sk-(?:(?:proj|svcacct|admin|ant|or|lf)-[\w\-]{12,}"
        r"|(?=[A-Za-z]{0,60}\d)[A-Za-z0-9]{16,}|(?=[\w\-]{0,60}\d)(?=[\w\-]{0,60}[A-Z])[\w\-]{32,})",
        "Weights & Biases": r"wandb_v1_\w{20,}|local-[0-9a-f]{40}",
        "Replicate": r"r8_[A-Za-z0-9]{30,}",
        "Groq": r"gsk_[A-Za-z0-9]{40,}",
        "Perplexity": r"pplx-[A-Za-z0-9]{40,}",
        "xAI": r"xai-[A-Za-z0-9]{40,}",
        "NVIDIA": r"nvapi-[\w\-]{40,}",
        "Cerebras": r"csk-[a-z0-9]{40,}",
        "Together": r"tgp_v1_[\w\-]{30,}",
        "ElevenLabs": r"sk_[0-9a-f]{48}",
        "LangSmith": r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}",
        "Kaggle": r"KGAT_[0-9a-f]{32}",
        "RunPod": r"rpa_[A-Z0-9]{30,}\w*",
        "Pinecone": r"pcsk_\w{40,}",
        "Databricks": r"dapi[0-9a-f]{32}(?:-\d)?",
        "Modal": r"a[ks]-[A-Za-z0-9]{22}",
        "Tavily": r"tvly-(?:dev-|prod-)?[A-Za-z0-9\-]{20,}",
        # Source code and packages.
        "GitHub": r"(?:gh[pousr]_|github_pat_)\w{16,}",
        "GitLab": r"(?:gl(?:pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct|wt)-|GR1348941)[\w\-]{16,}"
        r"(?:\.[0-9a-z]{2,12}){0,2}",
        "npm": r"npm_[A-Za-z0-9]{36}",
        "PyPI": r"pypi-Ag[\w\-]{30,}",
        "Docker": r"dckr_[po]at_[\w\-]{20,}",
        "RubyGems": r"rubygems_[0-9a-f]{48}",
        "crates.io": r"cio[A-Za-z0-9]{32}",
        "JFrog": r"AKCp[A-Za-z0-9]{69}|cmVmd[A-Za-z0-9]{59}",
        "Atlassian": r"AT[AC]TT3[\w\-=]{60,}",
        # Clouds.
        "AWS": r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}|ABSK[A-Za-z0-9+/]{100,}={0,2}"
        r"|bedrock-api-key-[\w+/=]{20,}",
        "Google": r"AIza[\w\-]{30,}|ya29\.[\w\-.]{20,}|GOCSPX-[\w\-]{20,}|1//0[\w\-]{40,}|AQ\.Ab[\w\-]{30,}",
        "Azure": r"[\w~.]{3}\dQ~[\w~.\-]{31,34}|[A-Za-z0-9]{52}JQQJ99[A-Za-z0-9]{26}",
        "DigitalOcean": r"do[opr]_v1_[0-9a-f]{64}",
        "Heroku": r"HRKU-AA[\w\-]{58}",
        "Fly": r"fo1_[\w\-]{43}|fm(?:1[ar]|2)_[A-Za-z0-9+/]{100,}={0,3}",
        "Supabase": r"sbp_[0-9a-f]{40}|sb_secret_[\w\-]{20,}",
        "PlanetScale": r"pscale_(?:tkn|pw|oauth)_[\w=.\-]{32,64}",
        "HashiCorp": r"hv[sbr]\.[\w\-]{24,}|[A-Za-z0-9]{14}\.atlasv1\.[\w\-=]{60,}",
        "Pulumi": r"pul-[0-9a-f]{40}",
        "Doppler": r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.\-]{40,}",
        "Tailscale": r"tskey-[a-z]+-[A-Za-z0-9\-]{16,}",
        "OpenShift": r"sha256~[\w\-]{43}",
        # What programs talk to.
        "Slack": r"xox[abcdeoprs](?:\.xox[bp])?-[A-Za-z0-9\-]{10,}|x(?:app|wfp)-[A-Za-z0-9\-]{10,}",
        "Discord": r"[MNO][\w\-]{23,27}\.[\w\-]{6}\.[\w\-]{27,38}",
        "Telegram": r"\d{8,10}:[\w\-]{35}",
        "Stripe": r"[rs]k_(?:live|test|prod)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{24,}",
        "Twilio": r"(?:AC|SK)[0-9a-z]{32}",
        "SendGrid": r"SG\.[\w\-]{16,32}\.[\w\-]{16,64}",
        "Mailchimp": r"[0-9a-z]{32}-us\d{1,2}",
        "Mailgun": r"key-[0-9a-f]{32}",
        "Square": r"sq0[a-z]{3}-[\w\\\-]{22,}",
        "Shopify": r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
        "Grafana": r"glc_[A-Za-z0-9+/]{32,}={0,2}|glsa_[A-Za-z0-9]{32}_[0-9a-fA-F]{8}",
        "Sentry": r"sntry[su]_[A-Za-z0-9+/=_]{40,}",
        "New Relic": r"NRAK-[A-Z0-9]{27}",
        "Linear": r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}",
        "Notion": r"ntn_[A-Za-z0-9]{40,}",
        "Prefect": r"pn[ub]_[A-Za-z0-9]{36}",
        "Figma": r"figd_[\w\-]{30,}",
        "Airtable": r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}",
        "Postman": r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}",
        "1Password": r"ops_eyJ[A-Za-z0-9+/]{50,}={0,3}|A3-[A-Z0-9]{6}(?:-[A-Z0-9]{5,11}){4,5}",
        "age": r"AGE-SECRET-KEY-1[A-Z0-9]{58}",
        # JSON in base64, which begins with `{"`: web tokens (RFC 7519) in 2 to 5 parts, tokens of Neptune in one.
        "JSON": r"eyJ[\w\-=]{8,}(?:\.[\w\-+/=]*){1,4}|eyJ[\w\-+/]{60,}={0,2}",
    }
)
"""What the keys of services look like, by the services' own documentation."""

_KEYS: Final = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(SERVICES.values())})(?![A-Za-z0-9])")

_PEM: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]*(?:PRIVATE KEY|CERTIFICATE)[A-Z ]*-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)"
    r"|---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----.*?(?:---- END [A-Z0-9 ]+ ----|\Z)"  # RFC 4716
    r"|PuTTY-User-Key-File-\d: .*?(?:Private-MAC: [0-9a-f]+|\Z)"
    # The last lines of a block, where lines of source are quoted from its middle.
    r"|(?<![A-Za-z0-9+/=])(?:[A-Za-z0-9+/=]{16,}[\\n\"'\s]{1,12}){1,12}-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----",
    re.DOTALL,
)

# What is before the secret is kept (`keep`).
_BEHIND: Final = (
    # https://user:password@host
    re.compile(r"""(?P<keep>\b[A-Za-z][A-Za-z0-9+.\-]{0,30}://)[^\s/?\#'"]{1,500}(?=@)"""),
    # RFC 6750, RFC 7617
    re.compile(r"(?P<keep>\b(?:Bearer|Basic)\s+)[A-Za-z0-9_\-.~+/=]{16,}"),
    # RFC 9110: a header with a scheme; of some schemes more words belong to it.
    re.compile(
        r"""(?P<keep>\b(?:Proxy-)?Authorization["']?\s{0,4}[:=]\s{0,4}["']?(?:Basic|Bearer|Token|ApiKey|Key|SharedKey)\s+)"""
        r"""[^\s"',;]{3,}""",
        re.IGNORECASE,
    ),
    re.compile(
        r"""(?P<keep>\b(?:Proxy-)?Authorization["']?\s{0,4}[:=]\s{0,4}["']?(?:Digest|AWS4-[A-Z0-9\-]{5,30}|OAuth|Hawk)\s+)"""
        r"""[^\r\n]{3,}""",
        re.IGNORECASE,
    ),
    # RFC 6265: all cookies of a request, or one that is set.
    re.compile(r"""(?P<keep>\b(?:Set-)?Cookie["']?\s{0,4}:\s{0,4}["']?)[^\s=;"']{1,200}=[^\r\n"']+""", re.IGNORECASE),
    # Addresses that take a message from whoever knows them.
    re.compile(
        r"""(?P<keep>\b(?:hooks\.slack\.com|discord(?:app)?\.com/api(?:/v\d{1,2})?/webhooks"""
        r"""|[\w\-]{1,80}\.webhook\.office\.com|outlook\.office(?:365)?\.com/webhook|hooks\.zapier\.com/hooks"""
        r"""|maker\.ifttt\.com/(?:trigger|use)|api\.telegram\.org/(?:file/)?bot|hook\.[\w\-]{1,20}\.make\.com"""
        r"""|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook)[/:]?)[^\s"'<>]{6,}""",
        re.IGNORECASE,
    ),
)


def hide_forms(text: str) -> str:
    """The text with `***` in the place of all that has the form of a secret."""
    if "----" in text or "PuTTY" in text:
        text = _PEM.sub(HIDDEN, text)
    text = _KEYS.sub(HIDDEN, text)
    for pattern in _BEHIND:
        text = pattern.sub(_behind, text)
    return text


def _behind(found: re.Match[str]) -> str:
    return f"{found['keep']}{HIDDEN}"
