"""Replaces what looks like a key or a password, before a text leaves the hook. Pure.

The table in docs/integrations/coding-agents.md lists these patterns.
"""

from __future__ import annotations

import re

SECRET = "[secret]"  # noqa: S105  (what stands in place of one)

# A name under which secrets are written, alone or as a part of another: DB_PASSWORD, apiKey, client-secret.
_NAME = (
    r"(?:pass(?:word|wd|phrase)|pwd|passwort|kennwort|secret|credentials?|api[_-]?key|access[_-]?key|auth[_-]?key"
    r"|account[_-]?key|private[_-]?key|secret[_-]?key|(?:access|auth|refresh|bearer|api|session|id)[_-]?token(?!s)|token(?!s))"
)
# The word for a password, and for a key, in the other languages that memories are read in.
_OTHER_NAME = (
    r"(?<![a-z])(?:密[码碼钥鑰]|口令|[金秘][钥鑰]|パスワード|暗証番号|秘密鍵|비밀번호|암호|비번|contraseña|clave"
    r"|mot\s{1,3}de\s{1,3}passe|mdp|senha|parola|hasło|şifre|wachtwoord|lösenord|mật\s{1,3}khẩu"
    r"|парол[ья]|كلمة\s{1,3}(?:المرور|السر)|رمز عبور|סיסמ[הא]|पासवर्ड|รหัสผ่าน)"
)
_PATTERNS = re.compile(
    # Each alternative begins with a literal or has a bounded length: long texts are searched in linear time.
    r"(?P<block>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY"
    r"(?: BLOCK)?-----|\Z))"
    r"|(?P<token>\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bgl(?:pat|ptt|rt|dt|soat)-[\w-]{16,}"
    r"|\bxox[a-z]-[\w-]{10,}|\bxapp-[\w-]{10,}|https://hooks\.slack\.com/services/[\w/]+"
    r"|\b[rsp]k_(?:live|test)_\w{10,}|\bwhsec_\w{16,}|\bsk-[\w-]{16,}|\bAIza[\w-]{30,}|\bGOCSPX-[\w-]{20,}"
    r"|\bya29\.[\w.-]{20,}|\bnpm_[A-Za-z0-9]{30,}|\bpypi-[\w-]{30,}|\bhf_[A-Za-z0-9]{20,}|\bdop_v1_[a-f0-9]{32,}"
    r"|\bSG\.[\w-]{16,}\.[\w-]{16,}|\bAGE-SECRET-KEY-1[A-Z0-9]{20,}|\bgm_[\w-]{20,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
    r"|(?P<scheme>\b[a-z][a-z0-9+.-]{1,20}://)(?P<login>[^\s/@:'\"<>]{0,200}:)[^\s/@'\"<>]{1,500}(?=@)"
    r"|(?P<header>\b(?:authorization|proxy-authorization)[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:(?:bearer|basic|token)\s{1,3})?"
    r"|\b(?:bearer|basic)\s{1,3}(?=[\w+/.=-]{0,200}\d))[\w+/.=~-]{8,}"
    rf"|(?P<name>(?:\b|_|(?<=[a-z])){_NAME}s?[\"'`]?(?:\s{{0,3}}(?:=>|:=|[:=：＝])\s{{0,3}}))"
    r"(?:\"[^\"\r\n]{1,500}\"|'[^'\r\n]{1,500}'|`[^`\r\n]{1,500}`|[^\s\"'`,;]{3,500})"
    # In a sentence only what has a digit or a sign: "the password is wrong" stays.
    rf"|(?P<sentence>\b{_NAME}\s{{1,3}}(?:is|was|lautet|ist)\s{{1,3}})[\"'`]?"
    r"(?=[^\s\"'`]{0,100}[\d!@#$%^&*_+=~])[^\s\"'`,;]{4,200}[\"'`]?"
    # In other languages only what is ASCII, as passwords are typed: the words of the sentence are not, or are no such.
    rf"|(?P<other>(?:{_OTHER_NAME}|\b{_NAME})(?:\s{{0,3}}(?:[:=：＝]|是|为|為|は|는|은|가|이|คือ)"
    r"|\s{1,3}(?:es|est|é|è|to|là|это|هي|is|är|है))\s{0,3})"
    r"[\"'`「『]?(?=[!-~]{0,100}[\d!@#$%^&*_+=~])[!-~]{4,200}[」』]?"
    r"|(?P<option>--(?:password|token|secret|api-key)\s{1,3})[^\s-]\S{2,500}",
    re.IGNORECASE | re.DOTALL,
)


def without_secrets(text: str) -> str:
    """Returns a text with `[secret]` in place of what looks like a key, a token or a password; names of them stay."""
    return _PATTERNS.sub(_replacement, text)


def _replacement(match: re.Match[str]) -> str:
    kept = next((match[name] for name in ("header", "name", "sentence", "other", "option") if match[name]), "")
    return (match["scheme"] + match["login"] if match["scheme"] else kept) + SECRET
