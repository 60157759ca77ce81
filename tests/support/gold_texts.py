"""Texts built to sit on the edges of the operators' patterns."""

from __future__ import annotations

from hypothesis import strategies as st

# Fragments that operators look for, broken ones, and characters the two engines class differently.
FRAGMENTS = """
a@b.co A.b-c+d_e@x-y.example.org @a.b@c.de x@Y.com @ . .. ...... …… ’ ” ! ？ 。 Yes. No! a.b
1.2.3.4 256.1.2.3 1.2.3.300 10.0.0.1: fe80:1:2:3:4:5:6:7 1:2:3:4:5:6:7:8.1.2.3 ::1
٣:1:2:3:4:5:6:7 00:1A:2b:3c:4D:5e 00-1a-2b-3c-4d-5e-6f :00:11:22:33:44:55 00:11:22:33:44:55é
password=x Secret: 'abc' api_key="q,r" TOKEN:a} ſecret=1 authorization:\tBearer licenſe-key=z
apiKey=v /a/b /tmp /home/u/x.txt C:\\x\\y \\\\srv\\share é/a/b/c http://a.com/x/y (/etc/passwd)
="/var/log" 415-555-0132 +1 (415) 555 0132 1999 2000 20240131 +8613912345678 13912345678
²1234567 ٣٤٥٦٧٨٩ 11010519900307123X eyJa.eyJb.c -----BEGIN -----END KEY-----
ou_0123456789abcdef0123456789abcdef uid_0123456789abcdef channel:feishu CHANNEL\u202f=mail
https://e.org/a?b#c, ftp://x WWW2.a.b e.g/x co.uk/p mailto:A@B.CO www.x httpſ://y key:value
FOO://BAR <b> <!-- c --> </p> & &amp; &lt; < > &EACUTE; /* Copyright */ /**/ /*/ */ // # -- --
\\section{A} \\section*[a]{b} \\paragraph{x}\\subparagraph{y} \\begin{ \\% % %% \\appendix
\\bibliography{r} \\bibliography{ \\begin{references} schÃ¶n “q” ‘ ﬁ Ａ \u200b \u00a0 \u3000
\u2028 \x85 \x1c \x1f \x0b \x0c \r \t \n \n\n ● ◆ □ ½ ² _ ‿ é e\u0301 中文 ，。！ 😀 Σ ΑΣ. ß İ ı K ſ
--- === | http www.x.com .COM HREF // x//y 'href' aa aa aa The the THE it is it is it is 12 3.5
a1b
"""


PIECES = [*FRAGMENTS.replace("\n", " ").split(" "), " ", "\n", "", "  ", ". "]


TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=30).map(
    lambda parts: "".join(p + s for p, s in zip(parts, [" ", "", "\n"] * 10, strict=False))
)
