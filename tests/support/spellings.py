"""Words in two spellings that a reader takes for one, and words that are not one."""

from __future__ import annotations

# (as one person writes it, as another types it): one word in every language. Equal in keys.
SAME = (
    ("Ёлка", "Елка"),
    ("Замо\u0301к", "Замок"),
    ("أحمد", "احمد"),
    ("مُحَمَّد", "محمد"),
    ("مـحـمـد", "محمد"),
    ("مصطفى", "مصطفي"),
    ("مدرسة", "مدرسه"),
    ("كتاب", "کتاب"),
    ("کتاب\u200cها", "کتابها"),
    ("خیابان ۱۲۳", "خيابان 123"),
    ("شارع ١٢٣", "شارع 123"),
    ("ΑΘΉΝΑ", "αθηνα"),
    ("Γιώργος", "ΓΙΩΡΓΟΣ"),
    ("שָׁלוֹם", "שלום"),
    ("ज़रूर", "जरूर"),
    ("पढ़ना", "पढना"),
    ("ＡＢＣ", "abc"),
    ("ｶﾞｽ", "がす"),
    ("サクラ", "さくら"),
    ("機場", "机场"),
    ("臺灣", "台湾"),
    ("渡邊", "渡辺"),
    ("渡邉", "渡辺"),
    ("髙橋", "高橋"),
    ("黒﨑", "黑崎"),
    ("澤田", "沢田"),
    ("廣瀨", "広瀬"),
    ("齋藤", "斎藤"),
    ("圖書館", "図書館"),
    ("𠮷野", "吉野"),
    ("हिन्दी", "हिंदी"),
    ("अङ्क", "अंक"),
    ("सम्बन्ध", "संबंध"),
    ("चाँद", "चांद"),
    ("घण्टा", "घंटा"),
    ("पञ्जाब", "पंजाब"),
    ("مسؤول", "مسئول"),
    ("شُؤُون", "شئون"),
    ("داؤود", "داوود"),
    ("İzmir", "izmir"),
    ("ISPARTA", "ısparta"),
    ("Straße", "Strasse"),
    ("Lumière", "Lumie\u0300re"),
)
# Marks of Latin letters, which some languages need and which people leave out on other keyboards: found, as a weaker
# match; two keys.
WITHOUT_MARKS = (
    ("Wałęsa", "Walesa"),
    ("Łódź", "Lodz"),
    ("Sørensen", "Sorensen"),
    ("Đà Nẵng", "Da Nang"),
    ("Müller", "Muller"),
    ("Peña", "Pena"),
    ("Þórður", "Thordur"),
)
# ä, ö and ü as people type them on a keyboard without them: found likewise, but for filters for words.
DIGRAPHS = (
    ("Schlüssel", "Schluessel"),
    ("Möhren", "Moehren"),
    ("Österreicher", "Oesterreicher"),
    ("Doktor Özdemir", "Doktor Oezdemir"),
    ("Jürgen Größl", "Juergen Groessl"),
)
# English words that have ae, oe or ue and are no other word by it.
ENGLISH_DIGRAPHS = (("poet", "pot"), ("shoes", "shos"), ("fuel", "ful"), ("toes", "tos"))
# Other words, whose letters look alike.
DIFFERENT = (
    ("йод", "иод"),
    ("їсти", "істи"),
    ("はし", "ばし"),
    ("がく", "かく"),
    ("पल", "पाल"),
    ("บาน", "บ้าน"),
    ("گل", "كل"),
    ("শাড়ি", "শাডি"),
    ("芸", "藝"),
    ("お嬢さん", "お娘さん"),
    ("斉藤", "斎藤"),
    ("अन्न", "अंन"),
    ("जन्म", "जंम"),
    ("سؤال", "سيال"),
)
