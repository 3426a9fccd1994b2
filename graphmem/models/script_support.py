"""Measures which scripts an embedder understands, once for each script, with pairs of sentences of equal meaning.

A model trained on English gives every sentence in Chinese or Greek nearly the same vector. Its cosines then rank
memories by chance, and the search leaves them out. Latin script is assumed to be understood.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphmem.plugins import Embedder
from graphmem.text import script_of

# The number of the twelve sentences (six pairs, both ways) that must be nearest to their own partner. Measured with
# MiniLM: English 12, Han 5, Devanagari 4, all others 0 to 2; chance level is 2.
MIN_MATCHED_SENTENCES = 9

# Pairs of sentences of equal meaning with hardly a common word, by script: the first word of the letters' names in
# Unicode.
_PAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    "CJK": (
        ("我家的狗生病了", "宠物犬身体不舒服"),
        ("他上个月搬到了北京", "近来那位朋友在首都居住"),
        ("妹妹喜欢弹钢琴", "她热爱演奏乐器"),
        ("这家餐厅太贵", "吃顿饭价格高得离谱"),
        ("周日会下雨", "天气预报说要带伞"),
        ("考试没有通过", "成绩不及格"),
    ),
    "HIRAGANA": (
        ("うちの犬が病気になった", "ペットの体調が悪いです"),
        ("彼は先月東京に引っ越した", "あの人は最近から首都で暮らしている"),
        ("妹はピアノを弾くのが好きだ", "彼女は音楽の演奏に夢中です"),
        ("このレストランは高すぎる", "食事の値段にびっくりした"),
        ("明日は雨が降るだろう", "天気予報によると傘が必要です"),
        ("試験に落ちてしまった", "テストは不合格でした"),
    ),
    "HANGUL": (
        ("우리 집 개가 아파요", "반려견 건강이 나쁩니다"),
        ("그는 지난달 서울로 이사했다", "그 친구는 요즘 수도에서 산다"),
        ("여동생은 피아노 치는 것을 좋아한다", "그녀는 악기 연주를 즐긴다"),
        ("이 식당은 너무 비싸다", "밥값이 터무니없이 높아요"),
        ("내일 비가 올 것이다", "일기예보에서 우산을 챙기래요"),
        ("시험에 떨어졌다", "합격하지 못했어요"),
    ),
    "CYRILLIC": (
        ("Наша собака заболела", "Домашний пёс плохо себя чувствует"),
        ("В прошлом месяце он переехал в Москву", "Теперь мой друг живёт в столице"),
        ("Сестра любит играть на пианино", "Ей нравится исполнять музыку"),
        ("Этот ресторан слишком дорогой", "Цены на еду там ужасно высокие"),
        ("Завтра будет дождь", "По прогнозу понадобится зонт"),
        ("Я не сдал экзамен", "Меня завалили на испытаниях"),
    ),
    "GREEK": (
        ("Ο σκύλος μας αρρώστησε", "Το κατοικίδιο δεν αισθάνεται καλά"),
        ("Μετακόμισε στην Αθήνα τον περασμένο μήνα", "Ο φίλος μου ζει τώρα στην πρωτεύουσα"),
        ("Η αδελφή μου παίζει πιάνο", "Της αρέσει να εκτελεί μουσική"),
        ("Αυτό το εστιατόριο είναι πολύ ακριβό", "Οι τιμές του φαγητού είναι υψηλές"),
        ("Αύριο θα βρέξει", "Η πρόγνωση λέει να πάρεις ομπρέλα"),
        ("Απέτυχα στις εξετάσεις", "Κόπηκα στο διαγώνισμα"),
    ),
    "ARABIC": (
        ("كلبنا مريض", "حيواننا الأليف ليس بصحة جيدة"),
        ("انتقل إلى القاهرة الشهر الماضي", "صديقي يسكن الآن في العاصمة"),
        ("أختي تحب العزف على البيانو", "تستمتع بأداء الموسيقى"),
        ("هذا المطعم غالي جدا", "أسعار الطعام مرتفعة"),
        ("سوف تمطر غدا", "النشرة الجوية تنصح بحمل المظلة"),
        ("رسبت في الامتحان", "لم أنجح في الاختبار"),
    ),
    "HEBREW": (
        ("הכלב שלנו חולה", "חיית המחמד לא מרגישה טוב"),
        ("הוא עבר לירושלים בחודש שעבר", "חבר שלי גר עכשיו בעיר הבירה"),
        ("אחותי אוהבת לנגן בפסנתר", "היא נהנית לבצע מוזיקה"),
        ("המסעדה הזאת יקרה מדי", "מחירי האוכל גבוהים"),
        ("מחר ירד גשם", "לפי התחזית צריך מטרייה"),
        ("נכשלתי במבחן", "לא עברתי את הבחינה"),
    ),
    "DEVANAGARI": (
        ("हमारा कुत्ता बीमार है", "पालतू जानवर की तबीयत खराब है"),
        ("वह पिछले महीने दिल्ली चला गया", "मेरा दोस्त अब राजधानी में रहता है"),
        ("मेरी बहन को पियानो बजाना पसंद है", "उसे संगीत से प्यार है"),
        ("यह रेस्तरां बहुत महंगा है", "खाने के दाम ऊँचे हैं"),
        ("कल बारिश होगी", "मौसम विभाग ने छाता रखने को कहा"),
        ("मैं परीक्षा में फेल हो गया", "इम्तिहान में सफल नहीं हुआ"),
    ),
    "THAI": (
        ("หมาของเราป่วย", "สัตว์เลี้ยงสุขภาพไม่ดี"),
        ("เขาย้ายไปกรุงเทพเมื่อเดือนที่แล้ว", "เพื่อนของฉันอยู่ในเมืองหลวงตอนนี้"),
        ("น้องสาวชอบเล่นเปียโน", "เธอหลงใหลการบรรเลงดนตรี"),
        ("ร้านอาหารนี้แพงเกินไป", "ราคาของกินสูงมาก"),
        ("พรุ่งนี้ฝนจะตก", "พยากรณ์อากาศบอกให้พกร่ม"),
        ("ฉันสอบตก", "ผลการทดสอบไม่ผ่าน"),
    ),
}


class ScriptSupport:
    """The scripts that one embedder understands. Thread-safe."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._supported: dict[str, bool] = {}

    def supports(self, text: str) -> bool:
        """Whether the embedder understands a text's script. Calls the embedder at the first text in a script.

        A script without test sentences counts as understood if most of the others are. Raises ModelError.
        """
        script = script_of(text)
        if script is None:
            return True
        if script in _PAIRS:
            return self._measure([script])[script]
        return 2 * sum(self._measure(list(_PAIRS)).values()) > len(_PAIRS)

    def _measure(self, scripts: Sequence[str]) -> dict[str, bool]:
        """Returns for each script whether the embedder matches enough of its sentence pairs; cached.

        There is no lock: threads may measure a script twice.
        """
        unmeasured = [script for script in scripts if script not in self._supported]
        if unmeasured:
            sentences = [sentence for script in unmeasured for pair in _PAIRS[script] for sentence in pair]
            vectors = np.stack([windows[0] for windows in self._embedder.embed(sentences)])
            for script, script_vectors in zip(unmeasured, np.split(vectors, len(unmeasured)), strict=True):
                # The sentences, on either side, whose nearest neighbour on the other side is their own partner.
                cosines = script_vectors[::2] @ script_vectors[1::2].T
                own = np.arange(len(cosines))
                matched = int((cosines.argmax(axis=0) == own).sum() + (cosines.argmax(axis=1) == own).sum())
                self._supported[script] = matched >= MIN_MATCHED_SENTENCES
        return {script: self._supported[script] for script in scripts}
