"""Keys and tokens to which services give a form of their own: how each begins, and the whole of it."""

from __future__ import annotations

from typing import Final

_TABLE: Final = (
    # where programs are kept
    ("ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_\w{16,}+"),
    ("github_pat_", r"github_pat_\w{16,}+"),
    ("glpat- gldt- glrt- glptt- glcbt- glft-", r"gl(?:pat|[dr]t|ptt|cbt|ft)-[\w-]{16,}+"),
    ("npm_", r"npm_[A-Za-z0-9]{16,}+"),
    ("pypi-", r"pypi-[\w-]{16,}+"),
    ("rubygems_", r"rubygems_\w{16,}+"),
    ("dckr_pat_ dckr_oat_", r"dckr_[po]at_[\w-]{8,}+"),
    ("atatt atctt", r"AT[AC]TT[\w-]{16,}+"),
    # clouds
    ("akia asia", r"A(?:KIA|SIA)[A-Z0-9]{12,}+(?::[\w+/]++)?+"),
    ("aiza", r"AIza[\w-]{16,}+"),
    ("ya29.", r"ya29\.[\w.-]{8,}+"),
    ("gocspx-", r"GOCSPX-[\w-]{16,}+"),
    ("1//0", r"1//0[\w-]{16,}+"),
    ("dop_v1_", r"dop_v1_[0-9a-f]{24,}+"),
    ("dapi", r"dapi[0-9a-f]{32}"),
    ("hvs. hvb. hvr.", r"hv[sbr]\.[\w-]{12,}+"),
    ("tskey-", r"tskey-[\w-]{12,}+"),
    ("pul-", r"pul-[0-9a-f]{40}"),
    # models and their runs
    ("hf_ api_org_", r"(?:hf|api_org)_[A-Za-z0-9]{16,}+"),
    ("sk- rk-", r"[sr]k-[\w-]{16,}+"),
    ("wandb_v", r"wandb_v\d_\w{16,}+"),
    ("nvapi-", r"nvapi-[\w-]{16,}+"),
    ("r8_", r"r8_[A-Za-z0-9]{30,}+"),
    ("gsk_", r"gsk_[A-Za-z0-9]{20,}+"),
    ("pplx-", r"pplx-[A-Za-z0-9]{16,}+"),
    ("xai-", r"xai-[A-Za-z0-9]{20,}+"),
    ("lsv2_", r"lsv2_[a-z]{2}_\w{16,}+"),
    ("tgp_v1_", r"tgp_v1_[\w-]{16,}+"),
    ("glsa_", r"glsa_\w{16,}+"),
    # messages and mail
    ("xox", r"xox[a-z](?:\.xox[a-z])?+-[\w-]{8,}+"),
    ("xapp-", r"xapp-[\w-]{16,}+"),
    ("hooks.slack", r"hooks\.slack\.com/\S++"),
    (":aa", r"\d{8,10}:AA[\w-]{32,}+"),  # Telegram
    ("sg.", r"SG\.[\w-]{8,}+\.[\w-]{8,}+"),
    ("lin_api_", r"lin_api_\w{16,}+"),
    ("ntn_", r"ntn_[A-Za-z0-9]{32,}+"),
    ("figd_", r"figd_[\w-]{16,}+"),
    # payment, shops, the rest
    ("k_live_ k_test_", r"[srp]k_(?:live|test)_\w{8,}+"),
    ("whsec_", r"whsec_\w{12,}+"),
    ("shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{24,}+"),
    ("sq0", r"sq0[a-z]{3}-[\w-]{16,}+"),
    ("sntrys_ sntryu_", r"sntry[su]_[\w+/=-]{16,}+"),
    ("pmak-", r"PMAK-[0-9a-f]{16,}+(?:-\w++)?+"),
    ("age-secret-key-", r"AGE-SECRET-KEY-1[A-Z0-9]{12,}+"),
    ("eyj", r"eyJ[\w-]{8,}+(?:\.[\w-]*+)*+"),  # JWT
)  # fmt: skip
TOKEN: Final = rf"(?<![A-Za-z0-9])(?:{'|'.join(whole for _, whole in _TABLE)})"
BEGINNINGS: Final = " ".join(begins for begins, _ in _TABLE)
"""In small letters; one of them is in every text that has a token."""
