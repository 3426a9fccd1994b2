"""Which parts of what is said to coding agents count as secrets."""

from __future__ import annotations

import pytest

from graphmem.coding_agents.secrets import without_secrets

# Made up, and put together here, so that no scanner takes them for real ones.
TOKENS = [
    "AKIA" + "IOSFODNN7EXAMPLE", "ghp_" + "a1B2" * 9, "github_pat_" + "11AAAAAA0" * 4, "glpat-" + "x" * 20,
    "xoxb-" + "123456789012-abcdef", "sk_live_" + "4eC39HqLyjWDarjt", "sk-" + "proj-abcdefghijklmnop",
    "sk-ant-" + "a" * 24,
    "AIza" + "S" * 35, "npm_" + "a" * 36, "pypi-" + "A" * 40, "hf_" + "a" * 30, "gm_" + "a" * 30,
    "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "SG." + "a" * 20 + "." + "b" * 20, "https://hooks.slack.com/services/" + "T000/B000/XXXX",
]  # fmt: skip


@pytest.mark.parametrize("token", TOKENS)
def test_tokens_of_known_forms_are_replaced(token):
    assert without_secrets(f"Use {token}, please.") == "Use [secret], please."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DB_PASSWORD=hunter2 make", "DB_PASSWORD=[secret] make"),
        ("export API_KEY='a b c'", "export API_KEY=[secret]"),
        ('{"apiKey": "abcdef", "a": 1}', '{"apiKey": [secret], "a": 1}'),
        ("client_secret: s3cr3t", "client_secret: [secret]"),
        ("token=abc123", "token=[secret]"),
        ("My password is hunter2.", "My password is [secret]"),
        ("Das Passwort ist geheim1!", "Das Passwort ist [secret]"),
        ("password：hunter2x", "password：[secret]"),
        ("我的密码是hunter2，别告诉别人", "我的密码是[secret]，别告诉别人"),
        ("token是abc123", "token是[secret]"),
        ("密碼：abc123", "密碼：[secret]"),
        ("パスワードはhunter2です", "パスワードは[secret]です"),
        ("비밀번호는 hunter2! 입니다", "비밀번호는 [secret] 입니다"),
        ("Mi contraseña es hunter2", "Mi contraseña es [secret]"),
        ("mot de passe : s3cret", "mot de passe : [secret]"),
        ("Пароль это hunter2", "Пароль это [secret]"),
        ("كلمة المرور هي abc123", "كلمة المرور هي [secret]"),
        ("รหัสผ่านคือ abc12", "รหัสผ่านคือ [secret]"),
        ("postgres://ana:pa55@db.example.org/x", "postgres://ana:[secret]@db.example.org/x"),
        ("Authorization: Bearer abcdefgh12", "Authorization: Bearer [secret]"),
        ("curl -H 'Authorization: Basic YW5hOnB3'", "curl -H 'Authorization: Basic [secret]'"),
        ("mysql --password hunter2", "mysql --password [secret]"),
        (
            "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY----- done",
            "[secret] done",
        ),
        ("-----BEGIN RSA PRIVATE KEY-----\ncut off", "[secret]"),
    ],
)
def test_secrets_by_their_names_and_places_are_replaced(text, expected):
    assert without_secrets(text) == expected
    assert without_secrets(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "The password is wrong.",
        "密码是错的，要换",
        "La clave es sencilla, 5 veces",
        "El enclave: 12ab!",
        "We rotate the API keys every month.",
        "max_tokens: 4096, tokens=12",
        "Commit 3f786850e387550fdab836ed7e6dc881de23001b broke the build.",
        "See https://example.org:8080/path and git@github.com:acme/api.git",
        "The bearer of bad news; basic questions about tokens.",
        "Tokenize the secretary's keyboard shortcuts.",
        "id 550e8400-e29b-41d4-a716-446655440000",
    ],
)
def test_other_words_stay(text):
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    "unit",
    ["password", "-----BEGIN ", "a://b:", "token ", "eyJaaaaaaaa.", "Authorization:", "密码", "mot de ", "x" * 50],
)
def test_a_long_text_is_searched_to_its_end(unit):
    assert without_secrets(unit * 20_000 + " password=hunter2").endswith("password=[secret]")
